"""`protopyramid evaluate`: the figures of a run on a split."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from protopyramid.cli.console import new_table, show_table, terminal


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="Manifest, by default the one of training."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow images of training; the result is marked as leaked."),
    ] = False,
    flags: Annotated[
        bool,
        typer.Option("--flags", help="Also count which out-of-distribution images are flagged."),
    ] = False,
    jet: Annotated[
        bool, typer.Option("--jet", help="Use the paper's colormap, jet, in the report.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the network first; pays for many images.")
    ] = False,
) -> None:
    """Evaluate a run: AUROC, calibration, and where its prototypes activate."""
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.evaluation.split import evaluated_split
    from protopyramid.runs import layout
    from protopyramid.runs.run import load_run
    from protopyramid.utils.progress_bar import progress_bar

    loaded = load_run(run)
    if compile:
        api.compile_run(loaded)
    chosen = evaluated_split(loaded, data, split, force)
    colours = "jet" if jet else api.COLOUR_MAP
    with progress_bar("evaluate", "images") as update:
        result = api.evaluate(
            loaded, chosen, bootstrap=bootstrap, seed=seed, colour_map=colours, progress=update
        )
    show(result)
    say(str(loaded.folder / layout.evaluation(split)))
    if flags:
        found, path = api.check_flags(loaded, chosen, seed)
        _show_flags(found, split)
        say(str(path))
    if split == "test":
        say(str(loaded.folder / layout.REPORT))


def _show_flags(found: Mapping[str, Any], split: str) -> None:
    ordinary = f"ordinary, from {split} (about {found['nominal']:.0%} expected)"
    rows = [[ordinary, str(found["images"]), f"{found['ordinary']:.0%}"]]
    for kind, share in found["strange"].items():
        rows.append([kind, str(found["strange_images"]), f"{share:.0%}"])
    show_table(["images", "n", "flagged"], rows)


def show(result: Mapping[str, Any]) -> None:
    """Print the figures as tables."""
    console = terminal()
    leaked = " LEAKED: the run was trained on some of these images." if result["leaked"] else ""
    console.print(
        f"{result['system']}, split {result['split']}: {result['n']} images of "
        f"{result['patients']} patients.{leaked}",
    )
    console.print(_classes(result))
    if result["activation_area"]["per_level"]:
        console.print(_levels(result))
    for line in _lines(result):
        console.print(line)


def _classes(result: Mapping[str, Any]) -> Any:
    from protopyramid.evaluation.comparison import number

    auroc, fine = result["auroc"], result["activation_precision"]["fine"]
    lesion, sources = result["activation_precision"]["lesion"], result["prototype_peak_inside"]
    table = new_table("class", "n", "AUROC", "sens.", "spec.", "fine", "lesion", "peaks")
    for name in result["classes"]:
        table.add_row(
            name,
            str(result["per_class_n"][name]),
            number(auroc["per_class"].get(name), auroc["ci95_per_class"].get(name)),
            number(result["sensitivity"][name]),
            number(result["specificity"][name]),
            number(fine["per_class"][name]),
            number(lesion["per_class"][name]),
            number(sources["per_class"][name]),
        )
    table.add_section()
    means = [number(fine["mean"]), number(lesion["mean"]), number(sources["mean"])]
    negative, everything = result["negative_class"], auroc["with_negative"]
    if negative:
        mean = number(auroc["mean"], auroc["ci95"])
        table.add_row(f"mean without {negative}", "", mean, "", "", *means)
        together = number(everything["mean"], everything["ci95"])
        table.add_row(f"mean with {negative}", str(result["n"]), together, "", "", "", "", "")
    else:
        mean = number(auroc["mean"], auroc["ci95"])
        table.add_row("mean", str(result["n"]), mean, "", "", *means)
    chance = [number(fine["chance"]), number(lesion["chance"]), number(sources["chance"])]
    table.add_row("chance", "", ".500", "", "", *chance)
    return table


def _levels(result: Mapping[str, Any]) -> Any:
    from protopyramid.evaluation.comparison import number

    table = new_table("level", "fine", "lesion", "area")
    precision = result["activation_precision"]
    for level, area in result["activation_area"]["per_level"].items():
        fine, lesion = (precision[scale]["per_level"][level] for scale in ("fine", "lesion"))
        table.add_row(level, number(fine), number(lesion), number(area))
    return table


def _lines(result: Mapping[str, Any]) -> list[str]:
    from protopyramid.evaluation.comparison import number

    lines = [
        f"accuracy {number(result['accuracy'], result['accuracy_ci95'])}, "
        f"calibration error {number(result['calibration']['ece'])}"
    ]
    negative = result["negative_class"]
    if negative:
        lines.insert(
            0,
            f"AUROC: how well the other classes are told apart, on images that are not {negative}; "
            f'"mean with {negative}" counts all images and all classes',
        )
    for unit in ("lesion", "patient"):
        grouped = result[f"per_{unit}"]
        if grouped is not None:
            auroc = number(grouped["auroc"]["mean"], grouped["auroc"]["ci95"])
            lines.append(f"per {unit} (views averaged, n = {grouped['n']}): AUROC {auroc}")
    health = result["health"]
    if health is not None:
        lines.append(
            f"{health['prototypes']} prototypes: {len(health['duplicates'])} duplicates, "
            f"{len(health['unused'])} are never used here, "
            f"{len(health['own_weight_not_positive'])} count against their own class, "
            f"{len(health['stronger_for_another_class'])} count most for another class"
        )
        lines.append(
            "fine, lesion: activation precision; peaks: share of prototypes whose own peak is inside the "
            "annotation; area: share of the image above half maximum"
        )
    return lines
