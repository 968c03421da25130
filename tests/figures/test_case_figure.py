"""The case-based figure is drawn from any input, however poor, and says what it should."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import PathPatch

from protopyramid.figures.case_figure import (
    CaseFigureData,
    CaseRow,
    Lead,
    Prediction,
    Side,
    case_figure,
    lead_lines,
    part_side,
    times_text,
    top_classes,
)

from .examples import BROKEN, COLOUR, FLAT, GREY, MAP, SPIKE, drawn, region, tags, texts


def row(activation=MAP, image=GREY, points=0.5, average=None) -> CaseRow:
    found = region(activation)
    return CaseRow(3, "b$^{x", 2, found, image, found, 0.4, 1.25, points, average)


def data(rows=(), classes=("a", "b$^{x"), image=GREY) -> CaseFigureData:
    shares = dict.fromkeys(classes, 1 / len(classes))
    against = classes[1] if len(classes) > 1 else None
    prediction = Prediction(
        "x.png", classes[0], dict.fromkeys(classes, 0.0), shares, against=against
    )
    return CaseFigureData(prediction, image, list(rows), Lead(None, Side(), Side(), 0.0))


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
        data([row(points=-0.5)]),
        data([row(points=0.0)]),
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


CONTRAST = replace(
    data([row(points=11.28, average=0.1), row(points=-6.0, average=0.5)]),
    prediction=Prediction(
        "x.png",
        "a",
        {"a": 86.66, "b": 83.16, "c": 70.0},
        {"a": 0.97, "b": 0.03, "c": 0.0},
        against="b",
    ),
    lead=Lead(1.76, Side(20, 28.2, 1, 11.28), Side(19, -26.46, 1, -6.0), 3.5),
    reference="mean of 240 training images",
)


def test_case_figure_says_why_one_class_and_not_the_other() -> None:
    found = texts(case_figure(CONTRAST))
    assert {"a", "probability 97%", "Below: why a and not b", "to the lead over b"} <= found
    # Each row: its score, that of an average image, the points, and which class they are for.
    assert {"score 0.40, average 0.10", "+0.30 × 1.25 =", "+11.28", "for a"} <= found
    assert {"score 0.40, average 0.50", "−0.10 × 1.25 =", "−6.00", "for b"} <= found
    assert {"looks more like", "looks less like"} <= found
    # How far the others are behind, not +86 and +83.
    assert {"points behind", "ahead", "3.50", "16.66"} <= found
    assert not any("86" in text or "83" in text for text in found)
    assert {"average image", "+1.76", "20 for a", "+28.20", "19 for b", "−26.46", "+3.50"} <= found
    note = next(text for text in found if "research only" in text)
    assert "average: mean of 240 training images" in note


def test_case_figure_says_what_the_rows_explain_and_what_the_rest_is() -> None:
    assert lead_lines(CONTRAST) == [
        "a is 33 times as probable as b: a lead of +3.50 points.",
        "An average training image would have a lead of +1.76. This image differs:",
        "20 prototypes speak for a: +28.20; the 1 above explain 40% of it, the other 19 the rest.",
        "19 prototypes speak for b: −26.46; the 1 above explain 23% of it, the other 18 the rest.",
    ]
    unshown = replace(CONTRAST, lead=Lead(None, Side(2, 3.0, 2, 3.0), Side(1, -1.0), 2.0))
    assert lead_lines(unshown)[1:] == [
        "2 prototypes speak for a: +3.00, all shown above.",
        "1 prototype speaks for b: −1.00, none of them shown.",
    ]
    assert lead_lines(data(classes=("only",)))[0] == "only gets +0.00 points."


def test_without_a_reference_the_figure_says_so() -> None:
    found = texts(case_figure(data([row()])))
    assert {"score 0.40", "0.40 × 1.25 =", "looks like"} <= found
    assert any("score of an average training image is not known" in text for text in found)
    assert not any(text.startswith("average image") for text in found)


def test_a_lead_is_said_as_how_many_times_as_probable() -> None:
    assert [times_text(math.log(x)) for x in (1.5, 2.0, 20.0, 0.25)] == [
        "1.5 times",
        "2.0 times",
        "20 times",
        "0.25 times",
    ]
    assert times_text(800.0) == "over 1,000 times"  # no overflow


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
