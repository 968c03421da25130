"""Training a run from a configuration and a manifest: the one entry point."""

from __future__ import annotations

from pathlib import Path

from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.run import RunFolder
from protopyramid.training.data_check import training_manifest
from protopyramid.training.processes import start_fabric
from protopyramid.training.trainer import Trainer


def train_run(
    config: Config,
    data: str | Path,
    out: str | Path,
    *,
    backbone_from: str | Path | None = None,
    devices: int = 1,
    accelerator: str = "auto",
    resume: bool = False,
) -> Path:
    """Train the model of a configuration on a manifest; returns the run folder.

    With `resume`, a run that was stopped goes on from its newest checkpoint, and a finished one is left
    as it is. Raises `Stopped` after SIGTERM or SIGINT, with everything saved.
    """
    folder = RunFolder(out)
    fabric = start_fabric(devices, config.train.precision, accelerator)
    if not fabric.is_global_zero:
        return _train(config, data, folder, fabric, backbone_from, resume)
    with folder.lock():
        return _train(config, data, folder, fabric, backbone_from, resume)


def _train(
    config: Config,
    data: str | Path,
    folder: RunFolder,
    fabric: object,
    backbone_from: str | Path | None,
    resume: bool,
) -> Path:
    if is_finished(folder):
        if resume:
            return folder.path
        raise UserError(f"{folder.path}: holds a finished run; choose another folder")
    started = (folder / "format").is_file()
    if started and not resume:
        raise UserError(
            f"{folder.path}: holds a run that was stopped; go on with --resume, or choose another folder"
        )
    if started:
        folder.check_format()
        _check_same_config(folder, config)
    source = Path(backbone_from) if backbone_from else None
    manifest = training_manifest(data, config)
    Trainer(config, manifest, folder, fabric, source).run(resume)  # type: ignore[arg-type]
    return folder.path


def is_finished(folder: RunFolder) -> bool:
    """Whether training has come to its end."""
    return (folder / "model.safetensors").is_file()


def _check_same_config(folder: RunFolder, config: Config) -> None:
    """A run goes on with the configuration that it began with, and no other."""
    from protopyramid.config import load_config

    path = folder / "config.toml"
    if path.is_file() and load_config(path) != config:
        raise UserError(
            f"{path}: the run was begun with another configuration; "
            "resume with the same preset and --set, or choose another folder"
        )
