"""What a run knows of the data that it was trained on (data.json)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from protopyramid.data.manifest import SPLITS, Manifest, Sample
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.run import Run


def training_manifest(run: Run) -> Path | None:
    """The manifest that the run was trained on, as far as it is still there."""
    remembered = run.folder.read_json(layout.DATA).get("manifest_path")
    if not remembered:
        return None
    path = Path(run.folder.path, remembered)  # relative to the run; an absolute path stays itself
    return path.resolve() if path.is_file() else None


def find_manifest(run: Run, given: str | Path | None) -> Path:
    """The manifest to evaluate on: the one given, else the one of training."""
    if given is not None:
        return Path(given)
    path = training_manifest(run)
    if path is None:
        named = run.folder.read_json(layout.DATA).get("manifest", "its manifest")
        raise UserError(
            f"{run.folder.path}: {named}, on which it was trained, is gone; "
            "say which manifest to use with --data MANIFEST"
        )
    return path


def split_samples(
    manifest: Manifest, split: str, splits: Mapping[str, Mapping[str, str]]
) -> tuple[Sample, ...]:
    """The samples of a split, where validation may be a part of train that training held out.

    splits: {split: {name: content hash}} of data.json.
    """
    if split not in SPLITS:
        raise UserError(f'no split "{split}"; the splits are {", ".join(SPLITS)}')
    rows = manifest.split(split)
    if not manifest.split("validation"):
        held_out = splits.get("validation", {})
        if split == "validation":
            rows = tuple(each for each in manifest.split("train") if each.name in held_out)
        elif split == "train":
            rows = tuple(each for each in rows if each.name not in held_out)
    if not rows:
        found = ", ".join(dict.fromkeys(sample.split for sample in manifest.samples))
        raise UserError(
            f"{manifest.path}: no row has split {split}, only {found}; choose one with --split"
        )
    return rows
