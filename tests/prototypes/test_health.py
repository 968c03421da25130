"""Prototypes that come from the image border, or from outside the annotation, are told of."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protopyramid.api import finish
from protopyramid.prototypes.health import (
    SourcePointing,
    below_chance,
    border_share,
    head_warnings,
    source_pointing,
    source_warnings,
)
from protopyramid.runs.run import Run, load_run

SIDES = {2: 16, 3: 8, 4: 4, 5: 4}  # maps of a VGG-16 at 64 px


def placed(run: Run, row: int, col: int) -> Run:
    """The run with every prototype's source at one cell."""
    return replace(run, prototypes=[replace(each, row=row, col=col) for each in run.prototypes])


def pointing(mean: float | None, chance: float | None) -> SourcePointing:
    return SourcePointing(mean, {}, {}, chance, 10)


NOTHING = pointing(None, None)


def test_unhealthy_prototypes_of_the_finished_head_are_one_line_per_kind(
    run: Run, tmp_path: Path
) -> None:
    """Said once, when the run is finished, and not after every fit of the head on the way."""
    shutil.copytree(run.folder.path, tmp_path / "copy")
    (tmp_path / "copy/MODEL_CARD.md").unlink(
        missing_ok=True
    )  # another test may have finished the run
    copy = load_run(tmp_path / "copy")
    layer = copy.model.prototypes
    assert layer is not None
    same = [
        index
        for index, (owner, level) in enumerate(
            zip(layer.classes.tolist(), layer.levels.tolist(), strict=True)
        )
        if (owner, level) == (0, 5)
    ]
    with torch.no_grad():
        layer.vectors[same] = layer.vectors[same[0]].clone()
        copy.model.head.weight[:, 0] = 0.0
    lines = head_warnings(copy, None)
    assert sum(f"duplicates prototype {same[0]}" in line for line in lines) == 1
    assert any("prototype 0" in line for line in lines)
    copy.folder.write_tensors("model.safetensors", copy.model.state_dict())
    for expected in (len(lines), 0):  # the second time, the card is there
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            finish(tmp_path / "copy")
        said = [str(each.message) for each in caught]
        assert sum(line in said for line in lines) == expected


def test_the_share_at_the_border_is_counted_cell_by_cell(run: Run) -> None:
    levels = [each.level for each in run.prototypes]
    places = [(0, 1), (1, 1), (SIDES[levels[2]] - 1, 2)]
    moved = [
        replace(each, row=places[number][0], col=places[number][1])
        for number, each in enumerate(run.prototypes[:3])
    ]
    share, chance = border_share(replace(run, prototypes=moved))
    assert share == pytest.approx(2 / 3)
    cells = [(4 * SIDES[level] - 4) / SIDES[level] ** 2 for level in levels[:3]]
    assert chance == pytest.approx(sum(cells) / 3)


@pytest.mark.parametrize(("row", "col"), [(0, 2), (2, 0), (3, 1)])
def test_most_prototypes_at_the_border_are_warned_of(run: Run, row: int, col: int) -> None:
    fine = [each for each in run.prototypes if each.level == 2]
    at_border = placed(replace(run, prototypes=fine), 0 if row == 0 else 15, col)
    (line,) = source_warnings(at_border, NOTHING)
    assert line.startswith("100% of the prototypes come from the border of their source image")
    assert "\n" not in line


def test_prototypes_in_the_middle_are_not(run: Run) -> None:
    assert source_warnings(placed(run, 1, 1), NOTHING) == []


def test_on_maps_that_are_nearly_all_border_chance_is_no_warning(run: Run) -> None:
    """Of 4 x 4 cells, 12 are at the border: three of four prototypes there say nothing."""
    coarse = [each for each in run.prototypes if each.level == 5][:4]
    assert len(coarse) == 4
    mixed = [replace(each, row=n, col=1) for n, each in zip((0, 0, 3, 1), coarse, strict=True)]
    share, chance = border_share(replace(run, prototypes=mixed))
    assert share == chance == 0.75
    assert source_warnings(replace(run, prototypes=mixed), NOTHING) == []


def test_pointing_below_chance_is_warned_of(run: Run) -> None:
    middle = placed(run, 1, 1)
    (line,) = source_warnings(middle, pointing(0.05, 0.12))
    assert line.startswith("5% of the prototypes have their peak inside the annotation")
    assert "below chance (12%)" in line
    assert source_warnings(middle, pointing(0.5, 0.12)) == []


@pytest.mark.parametrize(
    ("value", "chance", "expected"),
    [(0.1, 0.2, True), (0.2, 0.2, False), (None, 0.2, False), (0.1, None, False)],
)
def test_what_is_unknown_is_not_below_chance(value, chance, expected) -> None:
    assert below_chance(value, chance) is expected


def test_a_black_box_has_no_sources(black_box: Run) -> None:
    assert border_share(black_box) == (0.0, 0.0)
    assert source_warnings(black_box, source_pointing(black_box)) == []
