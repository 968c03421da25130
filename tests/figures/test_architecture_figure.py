"""The drawing of an architecture says the numbers that it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protopyramid.figures.architecture_figure import (
    ArchitectureFigureData,
    architecture_figure,
    summary,
)
from protopyramid.model.architecture import Architecture, LevelArchitecture

from .examples import drawn, texts

PYRAMID = Architecture(
    image=(224, 224, 3),
    levels=(
        LevelArchitecture(2, (56, 56, 128), (56, 56, 64), (3, 1), 157),
        LevelArchitecture(3, (28, 28, 256), (28, 28, 64), (0, 0), None),
        LevelArchitecture(4, (14, 14, 512), (14, 14, 64), (2, 0), 10),
        LevelArchitecture(5, (14, 14, 512), (14, 14, 64), (9, 2), 9),
    ),
    neck="pyramid",
    normalised=False,
    similarity="cosine",
    pooling="focal",
    scores=17,
    layers=((17, 2),),
    parameters=15_300_000,
)
DATA = ArchitectureFigureData("Title", "VGG-16", ["benign", "malignant"], PYRAMID)


def test_sizes_counts_and_pooling_are_said() -> None:
    found = texts(architecture_figure(DATA))
    assert {
        "c2  56 × 56 × 128",
        "z2  56 × 56 × 64",
        "c5  14 × 14 × 512",
        "x  224 × 224 × 3",
    } <= found
    assert {"mean of top 157 of 3136 − mean of all", "4 maps of 56 × 56", "4 scores"} <= found
    assert {"11 scores", "9", "17 → 2", "benign", "malignant", "1 × 1 × 64 each"} <= found
    assert {"up ×2, +, conv 3×3", "+, conv 3×3"} <= found
    assert "batch norm on each level" not in found
    normalised = replace(DATA, architecture=replace(PYRAMID, normalised=True))
    assert "batch norm on each level" in texts(architecture_figure(normalised))
    assert not any("784" in text for text in found)  # level 3 has no prototypes
    assert summary(DATA) == (
        "images of 224 × 224 pixels · 2 classes · 17 prototypes on levels 2, 4 and 5 · "
        "15.3 million parameters"
    )


def test_a_pyramid_that_passes_nothing_down_has_no_top_down_path() -> None:
    alone = replace(DATA, architecture=replace(PYRAMID, top_down=0.0))
    found = texts(architecture_figure(alone))
    assert {"Levels, each by itself", "conv 1×1, conv 3×3", "conv 1×1"} <= found
    assert not any("+" in text or "up ×" in text for text in found)


@pytest.mark.parametrize(
    ("pooling", "text"),
    [("topk", "mean of top 9 of 196"), ("max", "maximum of 196"), ("average", "mean of 196")],
)
def test_each_pooling_is_said_as_it_is(pooling: str, text: str) -> None:
    assert text in texts(
        architecture_figure(replace(DATA, architecture=replace(PYRAMID, pooling=pooling)))
    )


def test_a_black_box_and_many_classes_are_drawn() -> None:
    levels = tuple(replace(each, z=None, prototypes=(0, 0), pooled=None) for each in PYRAMID.levels)
    box = replace(
        PYRAMID, levels=levels, neck="none", similarity=None, pooling=None, scores=512,
        layers=((512, 4096), (4096, 2)),
    )  # fmt: skip
    figure = architecture_figure(replace(DATA, architecture=box))
    assert drawn(figure)
    found = texts(figure)
    assert {"512 → 4096\n4096 → 2", "mean of each channel: 14 × 14 × 512 → 512"} <= found
    assert "Prototypes" not in found
    many = tuple(replace(each, prototypes=(12,) * 30, pooled=3) for each in PYRAMID.levels)
    data = replace(
        DATA, classes=[f"class {n}" for n in range(30)], architecture=replace(PYRAMID, levels=many)
    )
    assert drawn(architecture_figure(data))
    assert {"and 23 more", "and 23 more classes"} <= texts(architecture_figure(data))
