"""A run as it looks in a notebook: what it is, and its prototypes by class and level."""

from __future__ import annotations

import math

from protopyramid.figures.notebook import prototypes_html
from protopyramid.figures.text import counted
from protopyramid.model.cells import cell_box
from protopyramid.prototypes.cases import Picture, to_picture
from protopyramid.prototypes.placeholder import blank
from protopyramid.runs.run import Run


def run_html(run: Run) -> str:
    """The run's system, data and prototypes; the network is not called."""
    size, data = run.config.data.image_size, run.config.data
    pictures: dict[
        tuple[str, int], list[tuple[int, Picture, tuple[float, float, float, float]]]
    ] = {}
    for record in run.prototypes:
        side = math.ceil(size / run.model.backbone.strides[record.level])
        cell = cell_box(record.row, record.col, side, side)
        there = run.cases.has_picture(record.index)
        picture = to_picture(run.cases.source(record.index)) if there else blank(size)
        shown = (record.index, picture, cell)
        pictures.setdefault((record.class_name, record.level), []).append(shown)
    words = (
        f"{run.system_title}, images of {size} × {size} pixels, "
        f"{counted(len(data.classes), 'class', 'classes')}, {counted(len(run.prototypes), 'prototype')}"
    )
    if run.prototypes:
        words += "; the yellow square on each training image is the prototype"
    return prototypes_html(run.name, f"{words}.", pictures, data.classes)
