"""`protopyramid faithfulness`: is what explanations show what the model used?"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protopyramid.cli.options import RunPath

if TYPE_CHECKING:
    from protopyramid.evaluation.faithfulness_results import (
        Faithfulness,
        GroupFaithfulness,
        RegionFaithfulness,
        Target,
    )

MEASURED = ("kept", "kept,\nother image", "removed")

SENTENCE = (
    "kept: how much of the rise of a similarity map is left when everything outside the region is "
    "replaced (faithful: near 1); removed: when the region itself is replaced (faithful: near 0). "
    "shown: the strongest 5 % of the map; evidence: the smallest region found that keeps 90 %; "
    "elsewhere: the same shape at a random place; other: what another prototype shows. Numbers are medians "
    'of three fillings; "other image" is one of the three alone, usually the strictest.'
)


MEASURES = (
    "focused, dual: how far the highest similarity falls when only what is shown, or only the rest, is "
    "blurred or darkened; pointing, energy: peak, and map above its mean, inside mask / lesion box (chance "
    "in brackets); stability: peak on the same part under noise; continuity: overlap of what is shown "
    "before and after noise; contrast: 1 - overlap with what another prototype shows; consist.: prototypes "
    "with one part on 80 % of their images; purity: commonest part on a prototype's ten best images."
)


def faithfulness(
    run: RunPath,
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="Manifest, by default the one of training."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    images: Annotated[
        int, typer.Option(min=0, help="Number of images drawn from the split (0 = all).")
    ] = 40,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of images, random regions and resamples.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON file to write, by default in the run folder."),
    ] = None,
    tta: Annotated[
        bool,
        typer.Option(
            help="Test the mean maps over test-time augmentation, as shown; without it, those of the image "
            "alone, at a fraction of the cost."
        ),
    ] = True,
) -> None:
    """Test whether the regions that explanations show are what the model used."""
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.utils.progress import progress_bar

    with progress_bar("faithfulness") as update:
        result, path = api.faithfulness(
            run, data, split, images=images, seed=seed, out=out, progress=update, tta=tta
        )
    show(result)
    say(str(path))


def show(result: "Faithfulness") -> None:
    """Print the figures as a table."""
    from protopyramid.cli.console import new_table, terminal

    console = terminal()
    leaked = " LEAKED: the run was trained on some of these images." if result.leaked else ""
    copies = f", mean maps over {result.tta} copies" if result.tta and result.tta > 1 else ""
    console.print(
        f"{result.system} ({result.maps}{copies}), split {result.split}: {result.images} images of "
        f"{result.patients} patients.{leaked}"
    )
    groups = {f"level {level}": group for level, group in result.per_level.items()}
    groups |= {**result.per_class, "all": result.all}
    sections = {name for names in (result.per_level, result.per_class) for name in list(names)[-1:]}
    shown = new_table("shown", "pairs", *MEASURED, *_beside("elsewhere"), *_beside("other"))
    evidence = new_table("evidence", "pairs", "area", *MEASURED, *_beside("elsewhere"))
    for name, group in groups.items():
        last = name.removeprefix("level ") in sections
        shown.add_row(name, *_shown(group), end_section=last)
        evidence.add_row(name, *_evidence(group), end_section=last)
    console.print(shown)
    console.print(evidence)
    console.print(SENTENCE)
    console.print(_curve_table(groups, sections))
    console.print(_measure_table(groups, sections))
    console.print(MEASURES)
    if result.used is not None:
        used = result.used
        console.print(
            f"{len(used.matter)} of {used.prototypes} prototypes matter on {used.images} images of split "
            f"{used.split}: {len(used.shown)} are in the five rows of some figure, {len(used.decisive)} "
            "decide the class of some image"
        )
    for target in result.targets:
        console.print(_target(target))


def _curve_table(groups: "Mapping[str, GroupFaithfulness]", sections: set[str]) -> Any:
    from protopyramid.cli.console import new_table
    from protopyramid.utils.tables import number

    headings = ("deletion", "insertion", *_beside("best 8 %"), *_beside("best 25 %"))
    table = new_table(
        "curves", "above half\nmaximum", *headings, "elsewhere:\ndeletion", "\ninsertion"
    )
    for name, group in groups.items():
        half, curves, moved = group.half_maximum_area, group.curves, group.curves_elsewhere
        if half is None or curves is None or moved is None:
            continue
        areas = [curves.deletion_area, curves.insertion_area]
        cells = [number(each.mean, each.ci95) for each in (half, *areas)]
        cells += [number(value) for share in (0.08, 0.25) for value in curves.at(share)]
        cells += [number(each.mean) for each in (moved.deletion_area, moved.insertion_area)]
        table.add_row(name, *cells, end_section=name.removeprefix("level ") in sections)
    return table


def _measure_table(groups: "Mapping[str, GroupFaithfulness]", sections: set[str]) -> Any:
    from protopyramid.cli.console import new_table
    from protopyramid.utils.tables import number

    names = (
        "focused",
        "dual",
        "pointing",
        "energy",
        "stability",
        "continuity",
        "contrast",
        "consist.",
    )
    table = new_table("measures", *names, "purity")
    for name, group in groups.items():
        found, over = group.measures, group.prototypes
        if found is None:
            continue
        chance = f"({number(found.chance_mask.mean)} / {number(found.chance_box.mean)})"
        pairs = [(found.pointing_mask, found.pointing_box), (found.energy_mask, found.energy_box)]
        inside = [f"{number(mask.mean)} / {number(box.mean)}" for mask, box in pairs]
        ends = [found.stability, found.continuity, found.contrastivity]
        table.add_row(
            name,
            *(number(each.mean) for each in (found.focused, found.dual)),
            inside[0],
            f"{inside[1]} {chance}",
            *(number(each.mean) for each in ends),
            number(None if over is None else over.consistency.mean),
            number(None if over is None else over.purity),
            end_section=name.removeprefix("level ") in sections,
        )
    return table


def _target(target: "Target") -> str:
    from protopyramid.utils.tables import number

    words = {True: "target met", False: "target missed", None: "not measured"}[target.met]
    sign = "at most" if target.at_most else "at least"
    return f"{target.name}: {number(target.value)} ({sign} {number(target.limit)}): {words}"


def _beside(baseline: str) -> list[str]:
    """The headings of a baseline's columns."""
    return [f"{baseline}:\nkept", "\nremoved"]


def _shown(group: "GroupFaithfulness") -> list[str]:
    baselines = (group.shown_elsewhere, group.other_prototype)
    return [str(group.pairs), *_measured(group.shown), *_plain(*baselines)]


def _evidence(group: "GroupFaithfulness") -> list[str]:
    from protopyramid.utils.tables import number

    found = group.evidence
    area = number(found.area.mean, found.area.ci95)
    return [str(group.pairs), area, *_measured(found), *_plain(group.evidence_elsewhere)]


def _measured(region: "RegionFaithfulness") -> list[str]:
    from protopyramid.utils.tables import number

    strict = number(region.kept_by_filling.get("other_image"))
    values = [number(each.mean, each.ci95) for each in (region.kept, region.removed)]
    return [values[0], strict, values[1]]


def _plain(*regions: "RegionFaithfulness") -> list[str]:
    from protopyramid.utils.tables import number

    return [number(each.mean) for region in regions for each in (region.kept, region.removed)]
