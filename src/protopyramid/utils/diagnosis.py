"""What this machine and this installation have, each with a remedy for what is missing."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from protopyramid.utils.cache_folder import cache_folder
from protopyramid.utils.opening import real_path

State = Literal["ok", "note", "problem"]
GIGABYTE = 1e9
LITTLE_SPACE = 5.0  # gigabytes of free disk space, below which a training's cache may not fit
REQUIRED = (
    "torch",
    "numpy",
    "scipy",
    "pillow",
    "safetensors",
    "pydantic",
    "lightning-fabric",
    "captum",
)
# Optional parts: what they are for, and the modules that must be importable.
EXTRAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dicom": ("reading DICOM", ("pydicom", "openjpeg", "gdcm")),
    "reader": ("the reader in the browser", ("fastapi", "uvicorn", "python_multipart")),
    "export": ("export to ONNX", ("onnx", "onnxscript", "onnxruntime")),
    "backbones": ("backbones from timm", ("timm",)),
    "tensorboard": ("TensorBoard logs", ("tensorboard",)),
}


@dataclass(frozen=True)
class Check:
    """One line of a diagnosis; `remedy` is empty where there is nothing to do."""

    name: str
    state: State
    found: str
    remedy: str = ""


def diagnose(folder: Path, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """Everything that decides whether and how fast this installation works; `folder` is to be written to."""
    return [
        _python(),
        *_packages(),
        _threads(environment),
        _gpu(),
        _precision(),
        _space("free disk space here", folder),
        _space("cache folder", cache_folder(environment)),
        *(_extra(name, purpose, modules) for name, (purpose, modules) in EXTRAS.items()),
    ]


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("Python", "ok", found)


def _packages() -> Iterator[Check]:
    for name in REQUIRED:
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(
                name, "problem", "not installed", "pip install -c constraints.txt protopyramid"
            )


def _threads(environment: Mapping[str, str]) -> Check:
    import torch

    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    found = f"{threads} on {cores} CPU cores"
    if threads > cores:
        return Check("threads", "problem", found, f"unset OMP_NUM_THREADS or set it to {cores}")
    if threads < cores and "OMP_NUM_THREADS" in environment:
        return Check("threads", "note", found, "unset OMP_NUM_THREADS to use all cores")
    return Check("threads", "ok", found)


def _gpu() -> Check:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return Check("GPU", "ok", ", ".join(names))
    if torch.backends.mps.is_available():
        return Check("GPU", "ok", "Apple Metal")
    return Check(
        "GPU", "note", "none; training runs on the CPU", "see docs/scaling.md for what helps there"
    )


def _precision() -> Check:
    import torch

    kind = torch.backends.cpu.get_cpu_capability()
    fast = "AVX512" in kind
    found = f"{kind}: bf16 is {'fast if the CPU has avx512_bf16' if fast else 'emulated and slow'}"
    return Check("CPU instructions", "ok", found)


def _space(name: str, folder: Path) -> Check:
    existing = next(each for each in (folder, *real_path(folder).parents) if each.exists())
    free = shutil.disk_usage(existing).free / GIGABYTE
    found = f"{free:.0f} GB free in {folder}"
    if not os.access(existing, os.W_OK):
        return Check(name, "problem", f"{folder} cannot be written to", "choose another folder")
    if free < LITTLE_SPACE:
        return Check(name, "problem", found, "free some space, or lower train.cache.disk_budget")
    return Check(name, "ok", found)


def _extra(name: str, purpose: str, modules: tuple[str, ...]) -> Check:
    """Importing is the only test that shows a broken installation."""
    label = f"extra {name}"
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            missing = error.name or module
            return Check(
                label,
                "note",
                f"{missing} is not installed",
                f"for {purpose}: pip install 'protopyramid[{name}]'",
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            return Check(
                label,
                "problem",
                f"{module} cannot be imported: {reason}",
                f"for {purpose}: reinstall {module}",
            )
    return Check(label, "ok", f"ready for {purpose}")
