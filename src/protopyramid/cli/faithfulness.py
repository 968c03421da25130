"""`protopyramid faithfulness`: is what explanations show what the model used?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.cli.options import RunPath

if TYPE_CHECKING:
    from protopyramid.evaluation.faithfulness import (
        Faithfulness,
        GroupFaithfulness,
        RegionFaithfulness,
    )

MEASURED = ("kept", "kept,\nother image", "removed")

SENTENCE = (
    "kept: how much of the rise of a similarity map is left when everything outside the region is "
    "replaced (faithful: near 1); removed: when the region itself is replaced (faithful: near 0). "
    "shown: the strongest 5 % of the map; evidence: the smallest region found that keeps 90 %; "
    "elsewhere: the same shape at a random place; other: what another prototype shows. Numbers are medians "
    'of three fillings; "other image" is one of the three alone, usually the strictest.'
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
) -> None:
    """Test whether the regions that explanations show are what the model used."""
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.utils.progress import progress_bar

    with progress_bar("faithfulness") as update:
        result, path = api.faithfulness(
            run, data, split, images=images, seed=seed, out=out, progress=update
        )
    show(result)
    say(str(path))


def show(result: "Faithfulness") -> None:
    """Print the figures as a table."""
    from protopyramid.cli.console import new_table, terminal

    console = terminal()
    leaked = " LEAKED: the run was trained on some of these images." if result.leaked else ""
    console.print(
        f"{result.system} ({result.maps}), split {result.split}: {result.images} images of "
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
