"""Explanations and runs in a notebook: whole, and nothing unescaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from protopyramid.figures.case_figure import CaseFigureData, CaseRow, Lead, Prediction, Side
from protopyramid.figures.notebook import case_html, prototypes_html

from .examples import GREY, region

EVIL = "<script>alert(1)</script>"
CELL = (0.25, 0.5, 0.375, 0.625)


class Reader(HTMLParser):
    """Collects tags and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_an_explanation_is_a_table_with_its_pictures_and_sum() -> None:
    found = region()
    row = CaseRow(3, EVIL, 2, found, GREY, found, 0.4, 10.0, 3.0, 0.1)
    prediction = Prediction(EVIL, EVIL, {EVIL: 3.5, "b": 0.0}, {EVIL: 0.97, "b": 0.03}, against="b")
    lead = Lead(0.5, Side(1, 3.0, 1, 3.0), Side(), 3.5)
    page = case_html(CaseFigureData(prediction, GREY, [row, replace(row, points=-3.0)], lead))
    read = Reader(page)
    assert "script" not in read.tags and EVIL in read.text
    assert read.tags.count("tr") == 3 and read.tags.count("img") == 6
    assert all(source.startswith("data:image/") for source in re.findall(r'src="([^"]*)"', page))
    assert {"+3.00", "−3.00"} <= set(re.findall(r"[+−]3.00", read.text))
    assert "a lead of +3.50 points" in read.text
    flagged = Reader(case_html(CaseFigureData(replace(prediction, unlike=True), GREY, [], lead)))
    assert flagged.text.startswith("Unlike the training images")


def test_a_run_is_a_grid_of_its_prototypes() -> None:
    pictures = {(EVIL, 2): [(0, GREY, CELL)], ("b", 5): [(1, GREY, CELL), (2, GREY, CELL)]}
    read = Reader(prototypes_html(EVIL, "words", pictures, [EVIL, "b"]))
    assert "script" not in read.tags and read.tags.count("img") == 3
    assert "level 2, finest" in read.text and "level 5, coarsest" in read.text
    assert Reader(prototypes_html("a black box", "", {}, ["a"])).tags.count("table") == 0
