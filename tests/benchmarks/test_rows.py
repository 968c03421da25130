"""The table has every row of the design with its target, and judges as it says."""

import json
import math
from dataclasses import replace

import pytest

from protopyramid.benchmarks.memory import can_measure_resident
from protopyramid.benchmarks.report import HEADER, Others, cells, notes, summary, write_rows
from protopyramid.benchmarks.rows import Row, all_rows, at_least, at_most
from protopyramid.benchmarks.settings import FULL, QUICK
from protopyramid.benchmarks.timing import Pair
from protopyramid.errors import UserError

# DESIGN.md, section 6: words of the row, bound, whether it is a least value.
DESIGN = [
    ("forward", 1.10, False),
    ("training step, all unfrozen", 1.2, False),
    ("stage A step, cached", 1.2, False),
    ("projection over", 1.05, False),
    ("head fit", 100.0, True),
    ("fine loss, m = 40, 4 levels", 10.0, True),
    ("--help", 0.4, False),
]


@pytest.fixture(scope="module")
def _rows_of() -> dict:
    return {}


@pytest.fixture
def rows(tiny, _rows_of) -> list[Row]:
    if "rows" not in _rows_of:
        _rows_of["rows"] = list(all_rows(tiny))
    return _rows_of["rows"]


@pytest.mark.parametrize(("words", "bound", "least"), DESIGN)
def test_every_row_of_the_design_is_measured_against_its_target(words, bound, least, rows):
    found = [row for row in rows if words in row.work and row.bound is not None]
    assert found
    assert (found[0].bound, found[0].at_least) == (bound, least)


def test_all_figures_are_numbers_and_lie_in_their_range(rows):
    for row in rows:
        assert all(math.isfinite(x) and x >= 0 for x in (row.value, row.ours, row.reference))
        assert row.low <= row.high
        assert len(cells(row)) == len(HEADER)


def test_the_fine_loss_has_memory_and_equality_beside_its_time(rows):
    fine = {row.work.rpartition(": ")[2]: row for row in rows if row.work.startswith("fine loss")}
    assert {"time", "difference"} <= set(fine)
    assert fine["difference"].met
    memory = ["peak of tensors"] + ["peak of resident memory"] * can_measure_resident()
    for words in memory:
        assert (fine[words].bound, fine[words].at_least, fine[words].unit) == (10.0, True, "MB")
    assert "tracemalloc" in fine["peak of tensors"].note


def test_the_extrapolation_of_the_head_epochs_is_said(rows):
    (row,) = [row for row in rows if row.work.startswith("head fit")]
    assert "extrapolated" in row.note
    assert f"{row.work}: {row.note}" in notes(rows)


def test_rows_are_written_as_json(rows, tmp_path):
    path = write_rows(rows, {"batch": 2}, 1.5, 0.25, tmp_path / "new" / "bench.json")
    content = json.loads(path.read_text())
    assert [row["work"] for row in content["rows"]] == [row.work for row in rows]
    assert content["share_of_other_programs"] == 0.25
    assert content["machine"]["threads"] >= 1 and content["took"] == 1.5


@pytest.mark.parametrize(("time", "met"), [(1.1, True), (1.3, False)])
def test_a_ratio_that_should_be_small_is_judged(time, met):
    row = at_most("w", "l", Pair((time,), (1.0,)), 1.2)
    assert row.met is met
    assert cells(row)[-2:] == ["≤ 1.20x", "met" if met else "MISSED"]


@pytest.mark.parametrize(("reference", "met"), [(20.0, True), (5.0, False)])
def test_a_ratio_that_should_be_large_is_reference_over_ours(reference, met):
    row = at_least("w", "l", Pair((1.0,), (reference,)), 10.0)
    assert (row.value, row.met) == (reference, met)
    assert cells(row)[-2:] == ["≥ 10x", "met" if met else "MISSED"]


def test_a_row_without_a_target_has_no_verdict():
    row = at_most("w", "l", Pair((2.0,), (1.0,)), None)
    assert row.met is None
    assert cells(row)[-2:] == ["", "–"]
    assert summary([row]) == "0 of 0 targets met"


def test_the_summary_names_what_is_missed():
    good, bad = (at_most(n, "l", Pair((t,), (1.0,)), 1.5) for n, t in (("a", 1.0), ("b", 2.0)))
    assert summary([good, bad]) == "1 of 2 targets met; missed: b"


def test_real_benchmarks_measure_the_preset_as_it_is_at_224_pixels():
    for settings in (FULL, QUICK):
        assert settings.config().data.image_size == 224
        assert settings.config().model.backbone.width == 1.0
        assert settings.head_images == 1000
        assert 8 <= settings.fine_batch <= 32


def test_the_share_of_other_programs_leaves_out_our_own_work(monkeypatch):
    from protopyramid.benchmarks import report

    busy, own, clock = iter((100.0, 106.0)), iter((10.0, 14.0)), iter((0.0, 10.0))
    monkeypatch.setattr(report, "_busy_seconds", lambda: next(busy))
    monkeypatch.setattr(report, "_own_seconds", lambda: next(own))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert Others().share == pytest.approx((6 - 4) / (2 * 10))


def test_a_single_image_is_timed_in_onnxruntime_and_the_missing_compiler_is_told(tiny, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from protopyramid.benchmarks import rows

    monkeypatch.setattr(rows, "compile_network", lambda model, size: "no C++ compiler")
    with pytest.warns(UserWarning, match=r"no row for torch.compile: no C\+\+ compiler"):
        found = list(rows.latency_rows(replace(tiny, latency=True)))
    assert [row.work for row in found] == ["forward, 1 image: onnxruntime"]
    assert found[0].met is None and found[0].value > 0


def test_a_compiled_network_has_its_row_and_missing_libraries_are_told(tiny, monkeypatch):
    from protopyramid.benchmarks import rows

    def missing(*_):
        raise UserError("install protopyramid[export]")

    monkeypatch.setattr(rows, "to_onnx", missing)
    monkeypatch.setattr(rows, "compile_network", lambda model, size: None)
    with pytest.warns(UserWarning, match=r"no row for onnxruntime: install"):
        found = list(rows.latency_rows(replace(tiny, latency=True)))
    assert [row.work for row in found] == ["forward, 1 image: torch.compile"]
