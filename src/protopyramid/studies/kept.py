"""What was measured of the runs of a study, kept without their models.

    study studies/outlined.toml --out results/outlined --kept studies/kept/outlined …

A long study is trained in pieces, on machines that come and go. A folder of kept results, small enough for
a repository, holds the settings of every run and, for every source, its evaluation, the probabilities behind
it and the localisation of saliency maps: all that the tables are made of. A run that is kept is not trained
again, unless another one starts from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from protopyramid.config import load_config
from protopyramid.config.schema import Config, OwnLoss
from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import read_rows
from protopyramid.evaluation.results import read_evaluation
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.sharing.release_card import Prediction, measured
from protopyramid.studies.by_source import SPLIT, OnSource, read_saliency
from protopyramid.utils import typed_json
from protopyramid.utils.csv_files import numbers_in, read_columns
from protopyramid.utils.tables import csv_text

SETTINGS = "settings.json"
# Settings that say where and how fast a run was trained, not what was trained.
ELSEWHERE = (
    ("model", "backbone", "weights"),
    ("train", "precision"),
    ("train", "threads"),
    ("train", "cache"),
)
# Settings of a loss, which have no effect where it has no weight.
OF_LOSSES: dict[OwnLoss, tuple[str, ...]] = {
    "contrast": ("contrast_margin",),
    "context": ("context_every", "context_share"),
    "extent": ("extent_shares", "extent_around", "extent_least"),
}
DIGITS = 6  # of a probability


def keep(run: RunFolder, kept: RunFolder, sources: Sequence[str]) -> None:
    """Copy the results of a run on these sources, and its settings; paths of this machine stay here."""
    for source in sources:
        part = layout.part(SPLIT, source)
        evaluation, saliency = read_evaluation(run, SPLIT, source), read_saliency(run, part)
        assert evaluation is not None and saliency is not None
        content = evaluation.to_json() | {"manifest": Path(evaluation.manifest).name}
        kept.write_json(layout.evaluation(part), content)
        rows = _rows(run / layout.evaluation(part, "csv"), evaluation.classes)
        kept.write_text(layout.evaluation(part, "csv"), rows)
        kept.write_json(layout.saliency(part), typed_json.to_json(saliency))
    kept.write_json(SETTINGS, _what(load_config(run / layout.CONFIG)))  # last: now it is kept


def kept_on_source(kept: RunFolder, config: Config, name: str, source: str) -> OnSource | None:
    """What is kept of a run on a source; None where nothing is, or what is kept has other settings."""
    if not (kept / SETTINGS).is_file() or _what(_config(kept)) != _what(config):
        return None
    part = layout.part(SPLIT, source)
    evaluation, saliency = read_evaluation(kept, SPLIT, source), read_saliency(kept, part)
    if evaluation is None or saliency is None:
        return None
    rows = read_rows(kept / layout.evaluation(part, "csv"), name, evaluation)
    return OnSource(rows, saliency.methods)


def is_kept(folder: Path) -> bool:
    """Whether a folder holds the kept results of a run, rather than the run."""
    return (folder / SETTINGS).is_file() and not (folder / layout.FORMAT).is_file()


def kept_predictions(folder: Path, run: Run) -> list[Prediction]:
    """What a kept run said of the lesions of its fold; UserError unless trained as `run` was."""
    kept = RunFolder(folder)
    if _recipe(_config(kept)) != _recipe(run.config):
        raise UserError(
            f"{folder}: its settings are not those of {run.folder.path}; give folds of the same recipe"
        )
    return measured(kept)


def _recipe(config: Config) -> dict[str, Any]:
    """The settings that a fold shares with a training on everything: all but the seed."""
    tree = _what(config)
    del tree["train"]["seed"]
    return tree


def kept_run(root: Path, replicate: str, variant: str) -> RunFolder:
    """Where the results of a run are kept."""
    return RunFolder(root / replicate / variant)


def _rows(path: Path, classes: Sequence[str]) -> str:
    """The table of an evaluation: hash, label and patient of each image, and what the model said of it."""
    columns = [f"probability_{name}" for name in classes]
    facts = ["hash", "label", "patient"]
    remedy = "evaluate the run again"
    found = read_columns(path, [*facts, *columns], remedy)
    numbers = numbers_in(path, found, columns, remedy)
    values = [
        [*(row[name] for name in facts), *(f"{value:.{DIGITS}g}" for value in given)]
        for row, given in zip(found, numbers, strict=True)
    ]
    return csv_text([*facts, *columns], values)


def _config(kept: RunFolder) -> Config:
    """The settings of a kept run, with today's defaults for keys that it does not have."""
    try:
        return Config.model_validate(kept.read_json(SETTINGS))
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise UserError(f"{kept / SETTINGS}: {place} cannot be read; delete its folder") from None


def _what(config: Config) -> dict[str, Any]:
    """The settings, without those that say where, or have no effect."""
    tree: dict[str, Any] = config.model_dump(mode="json")
    for loss, keys in OF_LOSSES.items():
        if not config.uses_loss(loss):
            tree["loss"] = {key: value for key, value in tree["loss"].items() if key not in keys}
    for *path, last in ELSEWHERE:
        branch = tree
        for key in path:
            branch = branch[key]
        branch.pop(last, None)
    return tree
