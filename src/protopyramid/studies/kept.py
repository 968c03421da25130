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

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.evaluation.comparison import read_rows
from protopyramid.evaluation.results import read_evaluation
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.studies.by_source import SPLIT, OnSource, read_saliency
from protopyramid.utils.opening import TABLE, read_file

# Settings that say where and how fast a run was trained, not what was trained.
ELSEWHERE = (
    ("model", "backbone", "weights"),
    ("train", "precision"),
    ("train", "threads"),
    ("train", "cache"),
)


def keep(run: RunFolder, kept: RunFolder, sources: Sequence[str]) -> None:
    """Copy the results of a run on these sources, and its settings, unless they are there already."""
    names = [layout.CONFIG]
    for part in (layout.part(SPLIT, source) for source in sources):
        names += [
            layout.evaluation(part),
            layout.evaluation(part, "csv"),
            layout.saliency(part),
        ]
    for name in names:
        content = read_file(run / name, TABLE)
        if not (kept / name).is_file() or read_file(kept / name, TABLE) != content:
            kept.write_bytes(name, content)


def kept_on_source(kept: RunFolder, config: Config, name: str, source: str) -> OnSource | None:
    """What is kept of a run on a source; None where nothing is, or what is kept has other settings."""
    if not (kept / layout.CONFIG).is_file() or not same_training(_config(kept), config):
        return None
    part = layout.part(SPLIT, source)
    evaluation, saliency = read_evaluation(kept, SPLIT, source), read_saliency(kept, part)
    if evaluation is None or saliency is None:
        return None
    rows = read_rows(kept / layout.evaluation(part, "csv"), name, evaluation)
    return OnSource(rows, saliency.methods)


def same_training(first: Config, second: Config) -> bool:
    """Whether two configurations train the same thing, wherever they do it."""
    return _what(first) == _what(second)


def _config(kept: RunFolder) -> Config:
    return load_config(kept / layout.CONFIG)


def _what(config: Config) -> dict[str, Any]:
    """The settings, without those that say where."""
    tree = config.model_dump(mode="json")
    for *path, last in ELSEWHERE:
        branch = tree
        for key in path:
            branch = branch[key]
        branch.pop(last, None)
    return tree


def kept_run(root: Path, replicate: str, variant: str) -> RunFolder:
    """Where the results of a run are kept."""
    return RunFolder(root / replicate / variant)
