"""Mean and spread over seeds, and differences that pair seeds."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest

from protopyramid.studies.plan import Study
from protopyramid.studies.results import Measurement
from protopyramid.studies.table import (
    Row,
    cell,
    columns_of,
    differences,
    make_rows,
    markdown,
    summary,
    values_csv,
)

STUDY = Study.model_validate(
    {
        "title": "T",
        "seeds": [0, 1],
        "variants": [
            {"name": "hidden", "preset": "iaia-bl", "shown": False},
            {"name": "a", "preset": "fpn-iaia-bl"},
            {"name": "b", "preset": "fpn-iaia-bl", "group": "Others"},
        ],
    }
)


def figures(auroc: float, fine: float | None) -> Measurement:
    levels = {} if fine is None else {"2": fine}
    place = SimpleNamespace(mean=fine, per_level=levels, per_class={})
    evaluation = SimpleNamespace(
        auroc=SimpleNamespace(mean=auroc, per_class={"spiculated": auroc}),
        accuracy=0.5,
        activation_precision=SimpleNamespace(fine=place, lesion=place),
        activation_area=place,
        source_pointing=SimpleNamespace(per_class={}),
        elimination=None,
        sensitivity={},
        negative_class="",
    )
    return Measurement(evaluation)


def test_summary_is_mean_and_sample_deviation():
    values = [0.8, 0.9, 0.85]
    middle, spread = summary(values)
    assert middle == pytest.approx(np.mean(values))
    assert spread == pytest.approx(np.std(values, ddof=1))


def test_a_figure_that_a_seed_lacks_has_no_mean():
    assert summary([0.8, None]) == (None, None)
    assert cell([0.8, None]) == "–"


def test_a_perfect_figure_keeps_its_one():
    assert cell([1.0]) == "1.000" and cell([0.9999]) == "1.000"


def test_rows_are_the_shown_variants_with_one_value_a_seed():
    found = {"a": [figures(0.9, 0.5), figures(0.8, 0.7)], "b": [figures(0.7, None)] * 2}
    rows = make_rows(STUDY, found)
    assert [row.name for row in rows] == ["a", "b"]
    assert rows[0].values["fine 2"] == [0.5, 0.7] and rows[1].values["fine"] == [None, None]


def test_differences_are_taken_seed_by_seed():
    rows = [Row("a", "", {"AUROC": [0.9, 0.5]}), Row("b", "", {"AUROC": [0.8, 0.6]})]
    (found,) = differences(rows)
    np.testing.assert_allclose(found.values["AUROC"], [-0.1, 0.1])


def test_the_markdown_table_has_a_cell_for_every_column_and_leaves_out_empty_ones():
    found = {"a": [figures(0.9, None)] * 2, "b": [figures(0.7, None)] * 2}
    text = markdown(make_rows(STUDY, found), ["AUROC", "fine", "accuracy"])
    lines = text.strip().splitlines()
    assert lines[0] == "|  | AUROC | accuracy |"
    assert len({line.count("|") for line in lines}) == 1
    assert "| **Others** |  |  |" in lines


def test_the_csv_holds_every_value():
    found = {"a": [figures(0.9, 0.5), figures(0.8, 0.7)], "b": [figures(0.7, None)] * 2}
    rows = list(csv.DictReader(io.StringIO(values_csv(STUDY, make_rows(STUDY, found)))))
    chosen = [row["value"] for row in rows if row["variant"] == "a" and row["figure"] == "AUROC"]
    assert chosen == ["0.9", "0.8"]
    assert len(rows) == sum(len(columns_of(each)) for name in found for each in found[name])


def test_where_seeds_and_folds_are_apart_the_csv_has_both():
    study = STUDY.model_copy(update={"data": "manifest", "folds": 2, "dealing": 2})
    rows = [Row("a", "", {"AUROC": [0.1, 0.2, 0.3, 0.4]})]
    lines = values_csv(study, rows).splitlines()
    assert lines[0] == "variant,group,seed,figure,value,fold"
    assert lines[1:3] == ["a,,0,AUROC,0.1,0", "a,,0,AUROC,0.2,1"]
