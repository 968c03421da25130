"""Training a run from a configuration and a manifest: the one entry point."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.training.checkpoint import has_checkpoint
from protopyramid.training.data_check import training_manifest
from protopyramid.training.distributed import on_rank_zero, start_fabric
from protopyramid.training.trainer import Trainer
from protopyramid.utils.allocator import keep_freed_memory


def train_run(
    config: Config,
    data: str | Path,
    out: str | Path,
    *,
    backbone_from: str | Path | None = None,
    devices: int = 1,
    accelerator: str = "auto",
    resume: bool = False,
    cache: str | Path | None = None,
) -> Path:
    """Train the model of a configuration on a manifest; returns the run folder.

    With `resume`, a run that was stopped goes on from its newest checkpoint, and a finished one is left
    as it is. Cached maps are kept in `cache`, for other runs to share, or else in the run's folder
    until its end. Raises `Stopped` after SIGTERM or SIGINT, with everything saved.
    """
    folder = RunFolder(out)
    keep_freed_memory()
    fabric = start_fabric(devices, config.train.precision, accelerator)
    source = Path(backbone_from) if backbone_from else None
    shared = Path(cache) if cache else None
    with ExitStack() as held:
        if not fabric.is_global_zero:  # what it would warn of, the first process has said
            held.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")

        def claim() -> Manifest | None:
            held.enter_context(folder.lock())
            return _begin(folder, config, data, resume)

        manifest = on_rank_zero(fabric, claim)
        if manifest is not None:
            Trainer(config, manifest, folder, fabric, source, shared).run(resume)
    return folder.path


def _begin(folder: RunFolder, config: Config, data: str | Path, resume: bool) -> Manifest | None:
    """What may be trained in this folder: its data, or None where nothing is left to do.

    A run that failed before its first checkpoint is begun anew.
    """
    finished = is_finished(folder)
    if not finished and not has_checkpoint(folder):
        return training_manifest(data, config)
    folder.check_format()
    if not resume:
        state = "finished run" if finished else "run that was stopped"
        advice = "" if finished else "go on with --resume, or "
        raise UserError(f"{folder.path}: holds a {state}; {advice}choose another folder")
    _check_same_config(folder, config)
    if finished:
        return None
    manifest = training_manifest(data, config)
    _check_same_data(folder, manifest)
    return manifest


def is_finished(folder: RunFolder) -> bool:
    """Whether training has come to its end."""
    return (folder / layout.MODEL).is_file()


def _check_same_config(folder: RunFolder, config: Config) -> None:
    """A run goes on with the configuration that it began with, and no other."""
    path = folder / layout.CONFIG
    if load_config(path, warn=False) != config:
        raise UserError(
            f"{path}: the run was begun with another configuration; "
            "resume with the same preset and --set, or choose another folder"
        )


def _check_same_data(folder: RunFolder, manifest: Manifest) -> None:
    """Checkpoints name images by their place: a run goes on with the rows that it began with."""
    begun = folder.read_json(layout.DATA)["splits"]
    for split, names in begun.items():
        if list(names) != [sample.name for sample in manifest.split(split)]:
            raise UserError(
                f"{manifest.path}: its {split} rows are not those that {folder.path} was begun with; "
                "resume with the same manifest, or choose another folder"
            )
