"""Training a run from a configuration and a manifest.

`train_run` ends with the trained model. `protopyramid.api.train` is the entry point that also finishes
the run (out-of-distribution limits, model card).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import read_provenance
from protopyramid.runs.shelf import find_run
from protopyramid.training.checkpoint import has_checkpoint
from protopyramid.training.data_check import training_manifest
from protopyramid.training.distributed import on_rank_zero, start_fabric
from protopyramid.training.same_files import check_same_files
from protopyramid.training.start import warn_of_frozen_random_backbone
from protopyramid.training.trainer import Trainer
from protopyramid.utils.allocator import keep_freed_memory
from protopyramid.utils.arguments import as_path
from protopyramid.utils.files import make_folder
from protopyramid.utils.opening import is_file

Finish = Callable[[RunFolder], None]


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
    finish: Finish | None = None,
) -> Path:
    """Train the model of a configuration on a manifest; returns the run folder.

    With `resume`, a stopped run continues from its newest checkpoint, and a trained one is not trained
    again. Cached maps are kept in `cache`, where other runs can share them, or else in the run folder until
    training ends. `finish` is called once training has ended, also of a run that was trained before: by the
    first process alone, while it still holds the folder. Raises `Stopped` after SIGTERM or SIGINT, with
    everything saved.
    """
    folder = RunFolder(out)
    keep_freed_memory()
    fabric = start_fabric(devices, config.train.precision, accelerator)
    source = None if backbone_from is None else find_run(as_path(backbone_from, "backbone_from"))
    shared = None if cache is None else as_path(cache, "cache")
    with ExitStack() as held:
        if not fabric.is_global_zero:  # the first process has said what it would warn of
            held.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")

        def claim() -> Manifest | None:
            # Before the lock, so that a mistake leaves no new folder behind.
            _check_folder(folder, config, resume)
            manifest = None if is_trained(folder) else training_manifest(data, config)
            if manifest is not None and not has_checkpoint(folder):
                warn_of_frozen_random_backbone(config, source)
            if shared is not None:
                make_folder(shared)
            held.enter_context(folder.lock())
            _check_folder(folder, config, resume)  # again: another process may have been first
            if is_trained(folder):
                return None
            if manifest is not None and has_checkpoint(folder):
                _check_same_data(folder, manifest)
            return manifest

        manifest = on_rank_zero(fabric, claim)
        if manifest is not None:
            Trainer(config, manifest, folder, fabric, source, shared).run(resume)
        if finish is not None and fabric.is_global_zero:
            finish(folder)
    return folder.path


def _check_folder(folder: RunFolder, config: Config, resume: bool) -> None:
    """Refuse a folder whose run may not be continued. One without a checkpoint starts from the beginning."""
    trained = is_trained(folder)
    if not trained and not has_checkpoint(folder):
        return
    folder.check_format()
    if not resume:
        finished = trained and is_file(folder / layout.CARD)  # the last file to be written
        state = "finished run" if finished else "run that was stopped"
        advice = "" if finished else "continue it with --resume, or "
        raise UserError(f"{folder.path}: holds a {state}; {advice}choose another folder")
    _check_same_config(folder, config)


def is_trained(folder: RunFolder) -> bool:
    """Whether training has ended: the model is its last file."""
    return is_file(folder / layout.MODEL)


def _check_same_config(folder: RunFolder, config: Config) -> None:
    """A run continues with the configuration that it was started with, and no other."""
    path = folder / layout.CONFIG
    if load_config(path, warn=False) != config:
        raise UserError(
            f"{path}: the run was started with another configuration; "
            "resume with the same preset and --set, or choose another folder"
        )


def _check_same_data(folder: RunFolder, manifest: Manifest) -> None:
    """Checkpoints name images by their position: a run continues with the rows and files it began with."""
    splits = read_provenance(folder).splits
    for split, names in splits.items():
        if list(names) != [sample.name for sample in manifest.split(split)]:
            raise UserError(
                f"{manifest.path}: its {split} rows are not those that {folder.path} was started with; "
                "resume with the same manifest, or choose another folder"
            )
    check_same_files(folder, manifest, splits)
