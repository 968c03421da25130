"""The tables of docs/outlined.md have the figures of the kept results, computed here with scikit-learn."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

PROJECT = Path(__file__).parents[2]
KEPT = PROJECT / "studies" / "kept" / "outlined" / "seed-0"
TEXT = (PROJECT / "docs" / "outlined.md").read_text(encoding="utf-8")
SYSTEMS = {
    "VGG-16": "vgg16",
    "IAIA-BL, adapted": "iaia-bl",
    "FPN-IAIA-BL": "fpn-iaia-bl",
    "protopyramid": "protopyramid",
}
SOURCES = ("film", "cmmd", "cesm")
TRAINED = {"film": "film", "CMMD": "cmmd", "CESM": "cesm", "all three": "all"}
MARGINS = ("circumscribed", "indistinct", "spiculated")


def macro(variant: str, source: str) -> float:
    """Mean AUROC of the three margins among the lesions, from the probabilities that are kept."""
    path = KEPT / variant / "evaluation" / f"test@{source}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["label"] in MARGINS]
    found = [
        roc_auc_score(
            [row["label"] == name for row in rows],
            [float(row[f"probability_{name}"]) for row in rows],
        )
        for name in MARGINS
    ]
    return float(np.mean(found))


def transfer_rows() -> list[tuple[str, list[str]]]:
    """The variants of the transfer table, with its cells."""
    part = TEXT.partition("### From film to digital")[2].partition("What the other sources add")[0]
    lines = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line] for line in lines[1:]]
    return [(f"{SYSTEMS[row[1]]}-{TRAINED[row[0]]}", row[2:]) for row in cells]


def test_the_transfer_table_has_every_system_and_training() -> None:
    wanted = {f"{system}-{trained}" for system in SYSTEMS.values() for trained in TRAINED.values()}
    assert {variant for variant, _ in transfer_rows()} == wanted


@pytest.mark.parametrize(("variant", "cells"), transfer_rows(), ids=lambda x: str(x)[:20])
def test_a_row_of_the_transfer_table_is_what_was_kept(variant: str, cells: list[str]) -> None:
    trained = variant.rpartition("-")[2]
    for source, cell in zip(SOURCES, cells, strict=True):
        found = re.fullmatch(r"(\*?)(\.\d{3}) \[(\.\d{3}), (\.\d{3})\](\*?)", cell)
        assert found, cell
        value, low, high = (float(found[number]) for number in (2, 3, 4))
        assert value == pytest.approx(macro(variant, source), abs=0.00051)
        assert low <= value <= high
        assert bool(found[1]) == bool(found[5]) == (trained in (source, "all"))
