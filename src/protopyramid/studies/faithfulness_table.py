"""Faithfulness of the runs of studies, side by side: what is shown, and what was used.

    python -m protopyramid.studies.faithfulness_table studies/faithfulness.toml --results results --kept DIR

The TOML file names the folders of studies under `--results` and their variants. Runs are measured, never
trained; what has been measured of a model is not measured again. Results are written to `--kept`, by default
RESULTS/faithfulness, and are small enough for a repository: a run that is missing but was measured elsewhere
is in the tables, one that was never measured is named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import model_digest
from protopyramid.evaluation.faithfulness import measure_faithfulness
from protopyramid.evaluation.faithfulness_results import Faithfulness, GroupFaithfulness
from protopyramid.evaluation.split import evaluated_split
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.studies.plan import read_tree
from protopyramid.studies.table import cell
from protopyramid.utils.files import part_of, write_text
from protopyramid.utils.tables import markdown_table
from protopyramid.utils.typed_json import first_problem

FOLDER = "faithfulness"
Say = Callable[[str], None]
NOTHING = "no run was found; train the studies first, as in make results-phantom"


class Source(BaseModel):
    """The runs of one study: FOLDER/seed-S/VARIANT."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(description="Heading of its table.")
    folder: str = Field(description="Folder of the study's runs, under --results.")
    variants: list[str] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0, 1, 2], min_length=1)
    split: Literal["test", "validation"] = "test"
    images: Annotated[int, Field(ge=1)] = Field(40, description="Images drawn from each split.")
    tta: bool = Field(
        True, description="Mean maps over test-time augmentation, not of the image alone."
    )


class Plan(BaseModel):
    """What is measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    seed: int = Field(0, description="Of images, random regions and resamples.")
    threads: Annotated[int, Field(ge=1)] = 1
    sources: list[Source] = Field(min_length=1)


# Heading of a column: where its value is in a group of results.
COLUMNS = {
    "shown: kept": "shown.kept.mean",
    "removed": "shown.removed.mean",
    "elsewhere: kept": "shown_elsewhere.kept.mean",
    "other prototype: kept": "other_prototype.kept.mean",
    "evidence: area": "evidence.area.mean",
    "evidence: removed": "evidence.removed.mean",
    "deletion": "curves.deletion_area.mean",
    "insertion": "curves.insertion_area.mean",
    "above half maximum": "half_maximum_area.mean",
}
MEASURES = {
    "focused": "measures.focused.mean",
    "dual": "measures.dual.mean",
    "pointing, mask": "measures.pointing_mask.mean",
    "energy, mask": "measures.energy_mask.mean",
    "chance, mask": "measures.chance_mask.mean",
    "energy, box": "measures.energy_box.mean",
    "chance, box": "measures.chance_box.mean",
    "stability": "measures.stability.mean",
    "continuity": "measures.continuity.mean",
    "contrastivity": "measures.contrastivity.mean",
    "consistency": "prototypes.consistency.mean",
    "purity": "prototypes.purity",
}


def read_plan(path: Path) -> Plan:
    """Read the TOML file."""
    try:
        return Plan.model_validate(read_tree(path))
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from None


def run_table(
    plan: Plan, results: Path, say: Say = lambda line: None, kept: Path | None = None
) -> str:
    """Measure what is missing, write RESULTS/faithfulness.md and return it."""
    torch.set_num_threads(plan.threads)
    known = RunFolder(kept or results / FOLDER)
    parts = [f"# {plan.title}\n"]
    for source in plan.sources:
        found = {
            variant: [
                _measured(plan, source, variant, seed, results, known, say) for seed in source.seeds
            ]
            for variant in source.variants
        }
        measured = {name: [x for x in each if x] for name, each in found.items() if any(each)}
        if measured:
            parts.append(render(source, measured))
    if len(parts) == 1:
        raise UserError(f"{results}: {NOTHING}")
    text = "\n".join(parts)
    write_text(results / f"{FOLDER}.md", text)
    return text


def _measured(
    plan: Plan,
    source: Source,
    variant: str,
    seed: int,
    results: Path,
    kept: RunFolder,
    say: Say,
) -> Faithfulness | None:
    """The faithfulness of a run, measured now if it is missing; None where there is no run either."""
    folder = part_of(results, f"{source.folder}/seed-{seed}/{variant}")
    run = load_run(folder) if (folder / layout.MODEL).is_file() else None
    found = _kept(plan, source, variant, seed, kept)
    if run is None:
        if found is None:
            say(f"{folder}: no run; left out")
        return found
    if found is not None and found.model == model_digest(run):
        return found
    say(f"{folder}: measuring")
    rows = evaluated_split(run, None, source.split)
    found = measure_faithfulness(run, rows, source.images, plan.seed, tta=source.tta)
    kept.write_json(_name(source, variant, seed), found.to_json())
    return found


def _name(source: Source, variant: str, seed: int) -> str:
    """The file that a measurement is kept in."""
    measured = variant if source.split == "test" else f"{variant}-{source.split}"
    return f"{source.folder}/seed-{seed}/{measured}.json"


def _kept(
    plan: Plan, source: Source, variant: str, seed: int, kept: RunFolder
) -> Faithfulness | None:
    """What is kept of a run, if it was measured as the plan says."""
    name = _name(source, variant, seed)
    if not (kept / name).is_file():
        return None
    found = Faithfulness.from_json(kept.read_json(name), kept / name)
    same = (found.seed, found.images) == (plan.seed, source.images)
    return found if same and (source.tta or found.tta == 1) else None


# -- the table -------------------------------------------------------------------------------------
def render(source: Source, found: dict[str, list[Faithfulness]]) -> str:
    """The tables of one study: by system and level, means and standard deviations over seeds."""
    counts = {len(each) for each in found.values()}
    seeds = "one run" if counts == {1} else f"{min(counts)} to {max(counts)} runs"
    if len(counts) == 1 and counts != {1}:
        seeds = f"{counts.pop()} runs"
    words = (
        f"Mean ± standard deviation over seeds ({seeds} of each system); {source.images} {source.split} "
        "images per run, the strongest own-class prototype per image and level; Grad-CAM stands in for the "
        "prototypes of vgg16."
    )
    if not source.tta:
        words += " Maps are those of the image alone, without test-time augmentation."
    parts = [f"## {source.title}\n", words + "\n"]
    for columns in (COLUMNS, MEASURES):
        rows = [row for name, runs in found.items() for row in _rows(name, runs, columns)]
        parts.append(markdown_table(["system, level", *columns], rows) + "\n")
    parts.append(_targets(found))
    return "\n".join(parts)


def _rows(
    name: str,
    runs: Sequence[Faithfulness],
    columns: Mapping[str, str],
) -> list[list[str]]:
    title = f"{name} (Grad-CAM)" if runs[0].maps == "Grad-CAM" else name
    levels = sorted({level for run in runs for level in run.per_level})
    rows = []
    for level in [*levels, "all"] if len(levels) > 1 else levels:
        groups = [run.all if level == "all" else run.per_level[level] for run in runs]
        cells = [cell([_value(group, path) for group in groups]) for path in columns.values()]
        rows.append([f"{title}, {level}", *cells])
    return rows


def _value(group: GroupFaithfulness, path: str) -> float | None:
    """The value at a dotted path; None where something on the way was not measured."""
    found: Any = group
    for name in path.split("."):
        if found is None:
            return None
        found = getattr(found, name)
    return None if found is None else float(found)


def _targets(found: dict[str, list[Faithfulness]]) -> str:
    """What each system reaches of the targets, in how many runs."""
    rows: list[list[str]] = []
    for name, runs in found.items():
        for place, target in enumerate(runs[0].targets):
            each = [run.targets[place] for run in runs if len(run.targets) > place]
            met = sum(bool(one.met) for one in each)
            sign = "≤" if target.at_most else "≥"
            goal = f"{sign} {target.limit:.2f}"
            values = cell([one.value for one in each])
            rows.append([name, target.name, goal, values, f"{met} of {len(each)}"])
    header = ["system", "target", "goal", "reached", "runs that meet it"]
    return "### Targets\n\n" + markdown_table(header, rows) + "\n" if rows else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 2 for a mistake of the user."""
    parser = argparse.ArgumentParser(prog="python -m protopyramid.studies.faithfulness_table")
    parser.add_argument("plan", type=Path, help="the TOML file, as studies/faithfulness.toml")
    parser.add_argument("--results", type=Path, required=True, help="folder of the studies' runs")
    parser.add_argument("--kept", type=Path, help="folder of what was measured, for a repository")
    given: Any = parser.parse_args(arguments)
    try:
        text = run_table(
            read_plan(given.plan),
            given.results,
            lambda line: print(line, file=sys.stderr),
            given.kept,
        )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
