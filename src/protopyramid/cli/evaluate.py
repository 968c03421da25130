"""`protopyramid evaluate`: the figures of a run on a split."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from protopyramid.cli.console import new_table, show_table, terminal
from protopyramid.cli.options import Compile, ResampleSeed, RunManifest, RunPath, Split

if TYPE_CHECKING:
    from protopyramid.evaluation.ood_check import FlagRates
    from protopyramid.evaluation.results import Evaluation

FINDINGS = 5  # on the prototypes' health that are shown; the report has all


def evaluate(
    run: RunPath,
    data: RunManifest = None,
    split: Split = "test",
    source: Annotated[
        str, typer.Option(help="Only the rows of this source, in a manifest of several datasets.")
    ] = "",
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples for the intervals.")] = 1000,
    seed: ResampleSeed = 0,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow images of training; the result is marked as leaked."),
    ] = False,
    flags: Annotated[
        bool,
        typer.Option("--flags", help="Also count which out-of-distribution images are flagged."),
    ] = False,
    faithfulness: Annotated[
        bool,
        typer.Option(
            "--faithfulness",
            help="First test whether what explanations show is what the model used, for the report.",
        ),
    ] = False,
    jet: Annotated[
        bool, typer.Option("--jet", help="Use the paper's colormap, jet, in the report.")
    ] = False,
    compile: Compile = False,
) -> None:
    """Evaluate a run: AUROC, calibration, and where its prototypes activate."""
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.evaluation.split import evaluated_split
    from protopyramid.runs import layout
    from protopyramid.runs.run import load_run
    from protopyramid.utils.progress import progress_bar

    loaded = load_run(run)
    if compile:
        api.compile_run(loaded)
    chosen = evaluated_split(loaded, data, split, force, source)
    colours = "jet" if jet else api.COLOUR_MAP
    if faithfulness:
        from protopyramid.cli.faithfulness import show as show_faithfulness

        with progress_bar("faithfulness") as update:
            faithful, _ = api.faithfulness(loaded, chosen, seed=seed, progress=update)
        show_faithfulness(faithful)
    with progress_bar("evaluate") as update:
        result = api.evaluate(
            loaded, chosen, bootstrap=bootstrap, seed=seed, colour_map=colours, progress=update
        )
    show(result)
    say(str(loaded.folder / layout.evaluation(chosen.key)))
    if flags:
        found, path = api.check_flags(loaded, chosen, seed)
        _show_flags(found, split)
        say(str(path))
    if chosen.key == "test":
        say(str(loaded.folder / layout.REPORT))


def _show_flags(found: "FlagRates", split: str) -> None:
    own = f"split {split} (about {found.nominal:.0%} expected)"
    rows = [[own, str(found.images), f"{found.in_distribution:.0%}"]]
    rows += [[kind, str(found.ood_images), f"{share:.0%}"] for kind, share in found.ood.items()]
    show_table(["images", "n", "flagged"], rows)


def show(result: "Evaluation") -> None:
    """Print the figures as tables."""
    console = terminal()
    leaked = " LEAKED: the run was trained on some of these images." if result.leaked else ""
    of_source = f", source {result.source}" if result.source else ""
    console.print(
        f"{result.title}, split {result.split}{of_source}: {result.n} images of "
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
    negative, everything = result.negative_class, auroc.with_negative
    if negative:
        mean = number(auroc.mean, auroc.ci95)
        table.add_row(f"mean without {negative}", "", mean, "", "", *means)
        together = number(everything.mean, everything.ci95)
        table.add_row(f"mean with {negative}", str(result.n), together, "", "", "", "", "")
    else:
        mean = number(auroc.mean, auroc.ci95)
        table.add_row("mean", str(result.n), mean, "", "", *means)
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


def _lines(result: "Evaluation") -> list[str]:
    from protopyramid.utils.tables import number

    lines = [
        f"accuracy {number(result.accuracy, result.accuracy_ci95)}, "
        f"calibration error {number(result.calibration.ece)}"
    ]
    negative = result.negative_class
    if negative:
        lines.insert(
            0,
            f"AUROC: how well the other classes are told apart, on images that are not {negative}; "
            f'"mean with {negative}" counts all images and all classes',
        )
    for unit, grouped in (("lesion", result.per_lesion), ("patient", result.per_patient)):
        if grouped is not None:
            auroc = number(grouped.auroc.mean, grouped.auroc.ci95)
            lines.append(f"per {unit} (views averaged, n = {grouped.n}): AUROC {auroc}")
    health = result.health
    if health is not None:
        lines.append(
            f"{health.prototypes} prototypes: {len(health.duplicates)} duplicates, "
            f"{len(health.unused)} are never used here, "
            f"{len(health.own_weight_not_positive)} do not count for their own class, "
            f"{len(health.stronger_for_another_class)} count most for another class"
        )
        lines.append(
            "fine, lesion: activation precision; pointing: the pointing game, share of prototypes whose own "
            "peak is inside the annotation; area: share of the image above half maximum"
        )
        findings = health.findings or ()
        lines += [f"check: {finding}" for finding in findings[:FINDINGS]]
        if len(findings) > FINDINGS:
            lines.append(f"check: {len(findings) - FINDINGS} more findings, listed in the JSON")
    return lines
