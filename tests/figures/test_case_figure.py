"""The case-based figure is drawn from any input, however poor, and says what it should."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import PathPatch

from protopyramid.figures.case_figure import (
    CaseFigureData,
    CaseRow,
    Prediction,
    RunnerUp,
    case_figure,
    part_side,
    sum_lines,
    top_classes,
)

from .examples import BROKEN, COLOUR, FLAT, GREY, MAP, SPIKE, drawn, region, tags, texts


def row(activation=MAP, image=GREY, contribution=0.5) -> CaseRow:
    found = region(activation)
    return CaseRow(3, "b$^{x", 2, found, image, found, 0.4, 1.25, contribution)


def data(rows=(), classes=("a", "b$^{x"), image=GREY, others=0) -> CaseFigureData:
    shares = dict.fromkeys(classes, 1 / len(classes))
    sums = dict.fromkeys(classes, 0.0)
    prediction = Prediction("x.png", classes[0], sums, shares)
    return CaseFigureData(prediction, image, list(rows), others, sums, sums)


@pytest.mark.parametrize(
    "activation", [MAP, FLAT, BROKEN, SPIKE], ids=["map", "flat", "nan", "spike"]
)
@pytest.mark.parametrize("image", [GREY, COLOUR], ids=["grey", "colour"])
def test_case_figure_of_any_map_and_image(activation, image) -> None:
    assert drawn(case_figure(data([row(activation, image)], image=image)))


@pytest.mark.parametrize(
    "shown",
    [
        data(),
        data([row()], classes=("only",)),
        data([row(contribution=-0.5)], others=39),
        data([row(contribution=0.0)]),
        data([row()], classes=tuple(f"a class with a long name {n}" for n in range(30))),
        data([row()] * 8, classes=("乳房", "")),
    ],
    ids=["no rows", "one class", "against", "nothing", "many", "odd names"],
)
def test_case_figure_of_degenerate_data(shown: CaseFigureData) -> None:
    assert drawn(case_figure(shown))


def test_case_figure_says_how_many_augmented_copies_it_averages() -> None:
    def words(tta: int) -> str:
        return " ".join(texts(case_figure(replace(data(), tta=tta))))

    assert "mean over 8 copies of the image" in words(8)
    assert "copies" not in words(1)


def test_case_figure_says_the_class_the_sum_and_each_contribution() -> None:
    prediction = Prediction("x.png", "a", {"a": 1.75, "b": 0.0}, {"a": 0.85, "b": 0.15})
    shown = replace(
        data([row(), row(contribution=-0.25)], others=3),
        prediction=prediction,
        shown_sums={"a": 0.25, "b": 0.0},
        other_sums={"a": 1.5, "b": 0.0},
    )
    found = texts(case_figure(shown))
    assert {"a", "probability 85%", "+0.50", "−0.25", "+0.25", "+1.50", "+1.75"} <= found
    assert {"2 prototypes above", "3 other prototypes"} <= found
    assert {"counts for a", "counts against a", "score × weight = points"} <= found


def test_case_figure_says_what_the_rows_explain_and_how_the_runner_up_comes_about() -> None:
    prediction = Prediction("x.png", "a", {"a": 79.0, "b": 78.0}, {"a": 0.73, "b": 0.27})
    shown = replace(
        data([row(contribution=44.0)], others=39),
        prediction=prediction,
        shown_sums={"a": 44.0, "b": 5.0},
        other_sums={"a": 35.0, "b": 73.0},
        runner_up=RunnerUp("b", 12, 80.5, 28, -2.5),
    )
    found = texts(case_figure(shown))
    assert {
        "The 1 prototype above adds +44.00 of the +79.00 of a (56%); the other 39 add +35.00.",
        "Runner-up b: its own 12 prototypes add +80.50, the other 28 add −2.50: +78.00 in all.",
    } <= found
    against = replace(shown, shown_sums={"a": -1.0, "b": 0.0}, runner_up=None)
    (line,) = sum_lines(against)
    assert "%" not in line  # a share of a total means nothing where the rows are against it


def test_case_figure_tells_the_label_of_each_case() -> None:
    own, other = replace(row(), case_label="b$^{x"), replace(row(), case_label="c")
    assert "b$^{x" in tags(case_figure(data([own])))
    assert "✕ c" in tags(case_figure(data([other])))
    assert tags(case_figure(data([row()]))) == []  # a run that did not record it
    notes = [" ".join(texts(case_figure(data([each])))) for each in (own, other)]
    assert "another class" not in notes[0] and "another class" in notes[1]


def test_every_case_is_enlarged_alike_whatever_its_level() -> None:
    fine = replace(row(), case_cell=(0.5, 0.5, 0.515625, 0.515625))
    coarse = replace(row(), case_cell=(0.0, 0.75, 0.25, 1.0))
    assert part_side([fine]) == 0.36 and part_side([fine, coarse]) == 0.75 and part_side([]) == 0.36
    figure = case_figure(data([fine, coarse]))
    sides = [
        image.get_extent()[1] - image.get_extent()[0] for image in figure.figure.axes[0].images
    ]
    enlarged = [side for side in sides if side > 2]  # the others are whole images, 1.85 inches wide
    assert enlarged == pytest.approx([1.85 / 0.75] * 2)


def test_case_figure_never_calls_a_score_a_similarity() -> None:
    assert not any("similarity" in text for text in texts(case_figure(data([row()]))))


def test_case_figure_outlines_the_annotation_and_warns_of_an_unlike_image() -> None:
    plain = data([row()])
    mask = np.zeros(GREY.shape[:2])
    mask[2:5, 2:5] = 1
    marked = replace(plain, mask=mask, prediction=replace(plain.prediction, unlike=True))
    found = texts(case_figure(marked))
    assert "dashed: annotation" in found
    # The flag is the headline, and the class stands below it.
    assert "Unlike the training images" in found and "Unlike the training images" not in texts(
        case_figure(plain)
    )
    film = replace(plain.prediction, film=True)
    assert "A whole film?" in texts(case_figure(replace(plain, prediction=film)))
    found = texts(case_figure(plain, "jet"))
    assert "red: best match" in found and not any("unlike" in text for text in found)


def test_the_figure_draws_the_box_of_the_region_around_all_its_parts() -> None:
    activation = np.zeros((100, 100), dtype=np.float32)
    activation[10:30, 40:60] = 1  # the peak is here
    activation[15, 45] = 2
    activation[80:90, 80:90] = 1  # and as much of the region is there
    found = region(activation)
    assert found.box == (0.4, 0.1, 0.9, 0.9)
    picture = np.zeros((100, 100), dtype=np.float32)
    figure = case_figure(data([row(activation, picture)], image=picture))
    patches = [each for each in figure.figure.axes[0].get_children() if isinstance(each, PathPatch)]
    extents = [each.get_path().get_extents() for each in patches]
    panel = 1.85  # inches; the first panel begins at x = 2.05
    first = [each for each in extents if each.x1 <= 2.05 + panel]
    assert len(first) == 2  # the contour of both parts, and the box
    for each in first:
        x0, x1 = (each.x0 - 2.05) / panel, (each.x1 - 2.05) / panel
        assert (x0, x1) == pytest.approx((0.4, 0.9), abs=0.02)
        assert (each.y1 - each.y0) / panel == pytest.approx(0.8, abs=0.02)


def test_more_classes_than_fit_are_cut_to_the_most_probable() -> None:
    shares = {f"{number}": number / 45 for number in range(10)}
    assert top_classes(shares, 3) == ["9", "8", "7"]
    assert top_classes({"b": 0.1, "a": 0.9}, 3) == ["b", "a"]


def test_no_global_figure_is_left() -> None:
    drawn(case_figure(data([row()])))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
