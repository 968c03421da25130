"""`protopyramid evaluate`: the figures of a run on a split."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from protopyramid.data.manifest import Sample
    from protopyramid.evaluation.results import Evaluation
    from protopyramid.evaluation.split import EvaluatedSplit
    from protopyramid.runs.run import Run

LOG_WIDTH = 132
FINDINGS = 5  # on the prototypes' health; the report has all


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="The manifest; else the one of training."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples of the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Also on images of training; marked as leaked.")
    ] = False,
    flags: Annotated[
        bool,
        typer.Option(
            "--flags", help="Also measure the out-of-distribution flag on made-up images."
        ),
    ] = False,
    jet: Annotated[
        bool, typer.Option("--jet", help="The report in the paper's colour map, jet.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the network first: for many images.")
    ] = False,
) -> None:
    """Evaluate a run: AUROC, calibration, and where its prototypes activate."""
    from protopyramid.cli.console import progress, say
    from protopyramid.cli.predict import compile_run
    from protopyramid.evaluation.evaluate import evaluate_run
    from protopyramid.evaluation.split import evaluated_split
    from protopyramid.runs import layout
    from protopyramid.runs.run import load_run

    loaded = load_run(run)
    if compile:
        compile_run(loaded)
    with progress("evaluate") as update:
        result = evaluate_run(loaded, data, split, force, bootstrap, seed, update)
    show(result)
    say(str(loaded.folder / layout.evaluation(split)))
    if flags or split == "test":
        chosen = evaluated_split(loaded, data, split, force)
        if flags:
            say(str(_flags(loaded, chosen, seed)))
        if split == "test":
            say(str(write_pages(loaded, result, list(chosen.samples), jet)))


def _flags(run: "Run", chosen: "EvaluatedSplit", seed: int) -> Path:
    """Count, show and write how many images are flagged as out of distribution."""
    from protopyramid.evaluation.ood_check import flag_rates

    found = flag_rates(run, chosen, seed)
    table = new_table("images", "n", "flagged")
    own = f"split {chosen.name} (about {found.nominal:.0%} expected)"
    table.add_row(own, str(found.images), f"{found.in_distribution:.0%}")
    for kind, share in found.ood.items():
        table.add_row(kind, str(found.ood_images), f"{share:.0%}")
    terminal().print(table)
    return run.folder.write_json(f"evaluation/{chosen.name}-flags.json", found.to_json())


def write_pages(
    run: "Run", result: "Evaluation", samples: "list[Sample]", jet: bool = False
) -> Path:
    """The model card and the report of a run with its results on test; returns the report's path."""
    from protopyramid.figures.drawing import COLOUR_MAP, JET
    from protopyramid.reports.model_card import write_model_card
    from protopyramid.reports.report import write_report

    write_model_card(run, result)
    return write_report(run, result, samples, JET if jet else COLOUR_MAP)


def show(result: "Evaluation") -> None:
    """The figures as tables on the terminal."""
    console = terminal()
    leaked = " LEAKED: the run was trained on some of these images." if result.leaked else ""
    console.print(
        f"{result.system}, split {result.split}: {result.n} images of "
        f"{result.patients} patients.{leaked}",
    )
    console.print(_classes(result))
    if result.activation_area.per_level:
        console.print(_levels(result))
    for line in _lines(result):
        console.print(line)


def _classes(result: "Evaluation") -> Any:
    from protopyramid.utils.tables import number

    auroc, fine = result.auroc, result.activation_precision.fine
    lesion, sources = result.activation_precision.lesion, result.source_pointing
    table = new_table("class", "n", "AUROC", "sens.", "spec.", "fine", "lesion", "pointing")
    for name in result.classes:
        table.add_row(
            name,
            str(result.per_class_n[name]),
            number(auroc.per_class.get(name), auroc.ci95_per_class.get(name)),
            number(result.sensitivity[name]),
            number(result.specificity[name]),
            number(fine.per_class[name]),
            number(lesion.per_class[name]),
            number(sources.per_class[name]),
        )
    table.add_section()
    means = [number(fine.mean), number(lesion.mean), number(sources.mean)]
    without = f" without {result.negative_class}" if result.negative_class else ""
    table.add_row(f"mean{without}", str(result.n), number(auroc.mean, auroc.ci95), "", "", *means)
    chance = [number(fine.chance), number(lesion.chance), number(sources.chance)]
    table.add_row("chance", "", ".500", "", "", *chance)
    return table


def _levels(result: "Evaluation") -> Any:
    from protopyramid.utils.tables import number

    table = new_table("level", "fine", "lesion", "area")
    fine, lesion = result.activation_precision.fine, result.activation_precision.lesion
    for level, area in result.activation_area.per_level.items():
        cells = [number(each.per_level[level]) for each in (fine, lesion)]
        table.add_row(level, *cells, number(area))
    return table


def terminal() -> Any:
    """The terminal, or a log wide enough for the tables."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else LOG_WIDTH
    return Console(width=width, highlight=False, markup=False, soft_wrap=False)


def new_table(first: str, *others: str) -> Any:
    """A table whose columns after the first are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _lines(result: "Evaluation") -> list[str]:
    from protopyramid.utils.tables import number

    together = result.auroc.with_negative
    lines = [
        f"accuracy {number(result.accuracy, result.accuracy_ci95)}, "
        f"AUROC including {result.negative_class or 'all classes'} "
        f"{number(together.mean, together.ci95)}, "
        f"calibration error {number(result.calibration.ece)}"
    ]
    for unit, grouped in (("lesion", result.per_lesion), ("patient", result.per_patient)):
        if grouped is not None:
            auroc = number(grouped.auroc.mean, grouped.auroc.ci95)
            lines.append(f"per {unit} (views averaged, n = {grouped.n}): AUROC {auroc}")
    health = result.health
    if health is not None:
        lines.append(
            f"{health.prototypes} prototypes: {len(health.duplicates)} duplicates, "
            f"{len(health.unused)} unused here, "
            f"{len(health.own_weight_not_positive)} do not support their own class, "
            f"{len(health.stronger_for_another_class)} support another class most"
        )
        lines.append(
            "fine, lesion: activation precision; pointing: pointing game, prototypes whose own peak is "
            "inside the annotation; area: share of an image above half maximum"
        )
        findings = health.findings or ()
        lines += [f"check: {finding}" for finding in findings[:FINDINGS]]
        if len(findings) > FINDINGS:
            lines.append(f"check: {len(findings) - FINDINGS} more findings, in the report")
    return lines
