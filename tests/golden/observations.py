"""What users rely on, read from a finished workflow and from the public API as plain JSON content."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

import protopyramid as pp

from . import workflow

CONFIGS = {
    **{name: name for name in workflow.SYSTEMS},
    **{name: name for name in ("protopyramid", "cbis-margins", "demo", "demo-iaia-bl")},
}
RUN = "runs/fpn-iaia-bl"
EVALUATION, EXPLANATION = f"{RUN}/evaluation/test.json", "explained/patient0005-1.json"
SHAPED = (
    EVALUATION,
    EXPLANATION,
    "runs/vgg16/evaluation/test.json",
    "study/seed-0/black-box/evaluation/control.json",
    "compared/comparison.json",
    "gallery/prototypes_nearest.json",
    "exported/model.json",
    "crossval/crossval.json",
    f"{RUN}/prototypes.json",
    f"{RUN}/data.json",
    f"{RUN}/thresholds.json",
)
TABLES = (
    "phantoms-0/manifest.csv",
    "predictions.csv",
    "crossval/predictions.csv",
    "compared/comparison.csv",
    "study/tiny.csv",
    f"{RUN}/evaluation/test.csv",
)
VALUED = (EVALUATION, EXPLANATION, "crossval/crossval.json", "compared/comparison.json")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files(folder: Path) -> list[str]:
    """The files below a folder; those of TensorBoard have the time in their names."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return sorted({re.sub(r"(tfevents)\..*", r"\1", name) for name in found})


def shape(content: Any, path: str = "") -> set[str]:
    """The dotted paths of JSON content with the type at each; "[]" stands for every entry of a list.

    >>> sorted(shape({"a": [{"b": 1}, {"b": None}]}))
    ['a: list', 'a[].b: NoneType', 'a[].b: int', 'a[]: dict']
    """
    found = {f"{path}: {type(content).__name__}"} if path else set()
    if isinstance(content, Mapping):
        for key, value in content.items():
            found |= shape(value, f"{path}.{key}" if path else str(key))
    elif isinstance(content, list | tuple):
        for value in content:
            found |= shape(value, f"{path}[]")
    return found


def phantoms(folder: Path) -> dict[str, Any]:
    """A dataset: a digest of all bytes, and what must be alike on every processor."""
    names = files(folder)
    hashes = [f"{name} {sha256((folder / name).read_bytes())}" for name in names]
    pictures = [name for name in names if name.endswith(".png")]
    chosen = pictures[:: len(pictures) // 8]
    return {
        "sha256": sha256("\n".join(hashes).encode()),
        "manifest_sha256": sha256((folder / "manifest.csv").read_bytes()),
        "files": names,
        "pictures": {name: picture(folder / name) for name in chosen},
    }


def picture(path: Path) -> dict[str, Any]:
    pixels = np.asarray(Image.open(path))
    return {
        "shape": list(pixels.shape),
        "dtype": str(pixels.dtype),
        "mean": float(pixels.mean()),
        "std": float(pixels.std()),
    }


def tensor(values: torch.Tensor) -> dict[str, Any]:
    """A tensor in a few numbers: entries are of its beginning, middle and end."""
    flat = values.detach().double().flatten()
    places = sorted({0, len(flat) // 3, len(flat) // 2, max(len(flat) - 1, 0)})
    return {
        "shape": list(values.shape),
        "dtype": str(values.dtype),
        "mean": flat.mean().item(),
        "std": flat.std(correction=0).item(),
        "entries": [flat[place].item() for place in places],
    }


def tensors(state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {name: tensor(values) for name, values in state.items()}


def trained(folder: Path) -> dict[str, Any]:
    """What training leaves in a run folder."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {
        "sha256": sha256((folder / "model.safetensors").read_bytes()),
        "files": files(folder),
        "prototypes": read_json(folder / "prototypes.json"),
        "thresholds": read_json(folder / "thresholds.json"),
        "metrics": [json.loads(line) for line in lines],
        "tensors": tensors(load_file(folder / "model.safetensors")),
    }


def header(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def overrides(system: str) -> dict[str, Any]:
    """The tiny settings as values instead of text."""
    written = {**workflow.TINY, **workflow.OWN[system]}
    return {key: tomllib.loads(f"value = {text}")["value"] for key, text in written.items()}


def config_keys() -> list[str]:
    """Every dotted key that a preset or recipe has a value for."""
    contents = [pp.load_config(name).model_dump() for name in CONFIGS.values()]
    return sorted({path.rpartition(": ")[0] for content in contents for path in shape(content)})


def fresh_models() -> dict[str, Any]:
    """The weights that each system starts with."""
    found = {}
    for system in workflow.SYSTEMS:
        torch.manual_seed(0)
        model = pp.build_model(pp.load_config(system, overrides(system)))
        found[system] = tensors(model.state_dict())
    return found


def wave(*sizes: int) -> torch.Tensor:
    """Numbers between -1 and 1 that need no random generator."""
    count = int(np.prod(sizes))
    return torch.arange(count, dtype=torch.float64).mul(0.7).sin().reshape(sizes)


def losses() -> dict[str, float]:
    """Every public loss on fixed tensors."""
    labels, classes = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1, 2])
    levels, maps = torch.tensor([2, 5, 2, 5]), wave(3, 4, 6, 6)
    masks = (wave(3, 24, 24) > 0.3).double()
    own = classes[None, :] == labels[:, None]
    near, weight = wave(3, 4), torch.ones(3, 4, dtype=torch.float64)
    found = {
        "cluster": pp.losses.cluster(near, labels, classes, levels),
        "separation": pp.losses.separation(near, labels, classes, levels),
        "contrast": pp.losses.contrast(maps, masks, own, k=3),
        "fine_annotation": pp.losses.fine_annotation(maps, masks, weight, weight * 0.5),
        "fine_grouped": pp.losses.fine_grouped({2: maps}, masks, labels, classes),
        "l1": pp.losses.l1(wave(3, 4), classes),
        "orthogonality": pp.losses.orthogonality(wave(4, 5), classes, levels),
    }
    return {name: value.item() for name, value in found.items()}


def api(folder: Path) -> dict[str, Any]:
    """What the public names give, in this process."""
    run = pp.load_run(folder / RUN)
    image = folder / "phantoms-0/images/patient0008-2.png"
    prediction = run.predict([image])[0]
    return {
        "names": sorted(pp.__all__),
        "models": fresh_models(),
        "losses": losses(),
        "prediction": {**prediction, "image": Path(prediction["image"]).name},
        "explanation": run.explain(image).to_json(),
    }


def config_texts() -> dict[str, str]:
    """Each preset and recipe, resolved, by the file that holds its text."""
    return {f"config/{n}.toml": pp.dump_config(pp.load_config(p)) for n, p in CONFIGS.items()}


def shapes(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    return {name: sorted(shape(read_json(folder / name))) for name in names}


def observe(folder: Path) -> dict[str, Any]:
    """All that a finished workflow is pinned by, by file name; `.toml` are text, `.json` content."""
    datasets = {str(s): phantoms(folder / f"phantoms-{s}") for s in workflow.PHANTOM_SEEDS}
    return {
        **config_texts(),
        "config/keys.json": config_keys(),
        "phantoms.json": datasets,
        **{f"training/{name}.json": trained(folder / "runs" / name) for name in workflow.RUNS},
        "shapes.json": shapes(folder, SHAPED),
        "headers.json": {name: header(folder / name) for name in TABLES},
        "values.json": {name: read_json(folder / name) for name in VALUED},
        "api.json": api(folder),
    }
