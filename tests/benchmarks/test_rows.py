"""The rows of the table: ratios of the times that were taken, judged by their targets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from protopyramid.benchmarks import (
    explanation,
    fine,
    head,
    inference,
    learning,
    projection,
    serving,
    startup,
)
from protopyramid.benchmarks.memory import Peaks, can_measure_resident
from protopyramid.benchmarks.report import HEADER, OtherPrograms, cells, notes, summary, write_rows
from protopyramid.benchmarks.row import Row, at_least, at_most
from protopyramid.benchmarks.rows import ROWS, all_rows
from protopyramid.benchmarks.settings import FULL, QUICK
from protopyramid.benchmarks.timing import Pair
from protopyramid.errors import UserError

# -- rows as they are measured -------------------------------------------------------------------


@pytest.fixture(scope="module")
def _rows_of() -> dict:
    return {}


@pytest.fixture
def rows(tiny, _rows_of) -> list[Row]:
    if "rows" not in _rows_of:
        _rows_of["rows"] = list(all_rows(tiny))
    return _rows_of["rows"]


def test_all_figures_are_numbers_and_lie_in_their_range(rows):
    assert len(rows) >= len(ROWS) - 1  # all but the row of compiled networks, which is off
    for row in rows:
        assert all(math.isfinite(x) and x >= 0 for x in (row.value, row.ours, row.reference))
        assert row.low <= row.high
        assert len(cells(row)) == len(HEADER)


def test_the_fine_loss_has_memory_and_equality_beside_its_time(rows):
    found = {row.work.rpartition(": ")[2]: row for row in rows if row.work.startswith("fine loss")}
    assert {"time", "difference"} <= set(found)
    assert found["difference"].met
    memory = ["peak of tensors"] + ["peak of resident memory"] * can_measure_resident()
    for words in memory:
        assert (found[words].at_least, found[words].unit) == (True, "MB")
    assert "tracemalloc" in found["peak of tensors"].note


def test_rows_are_written_as_json(rows, tmp_path):
    path = write_rows(rows, {"batch": 2}, 1.5, 0.25, tmp_path / "new" / "bench.json")
    content = json.loads(path.read_text())
    assert [row["work"] for row in content["rows"]] == [row.work for row in rows]
    assert [row["met"] for row in content["rows"]] == [row.met for row in rows]
    assert content["share_of_other_programs"] == 0.25
    assert content["machine"]["threads"] >= 1 and content["took"] == 1.5


# -- rows of injected times ----------------------------------------------------------------------


@dataclass
class Clock:
    """Stands in for `in_turns`: it does both works once, and says that they took these times."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]
    done: int = 0

    def __call__(self, ours: Callable, reference: Callable, repetitions: int) -> Pair:
        ours()
        reference()
        self.done += 1
        return Pair(self.ours, self.reference)


# Module, measuring function, words of the row; ours over the reference, or the reverse.
SMALL_RATIOS = [
    (inference, inference.forward_rows, "forward, 2 images"),
    (explanation, explanation.explanation_rows, "explanation, 1 image"),
    (explanation, explanation.explanation_rows, "case figure"),
    (learning, learning.training_row, "training step"),
    (learning, learning.cached_row, "stage A step"),
    (learning, learning.loader_row, "data: fetch"),
    (projection, projection.projection_rows, "projection over 12 images"),
    (serving, serving.explain_rows, "POST /api/explain, 1 client"),
    (serving, serving.explain_rows, "POST /api/explain, 4 clients"),
    (serving, serving.film_row, "open a film of 600 x 700"),
]


def measured(
    module: object, measure: Callable[..., Iterator[Row]], words: str, tiny, monkeypatch, clock
) -> Row:
    monkeypatch.setattr(module, "in_turns", clock)
    (row,) = [row for row in measure(tiny) if row.work.startswith(words)]
    assert clock.done
    return row


@pytest.mark.parametrize(
    ("module", "measure", "words"), SMALL_RATIOS, ids=[words for *_, words in SMALL_RATIOS]
)
def test_ours_over_the_reference_is_judged_by_the_rows_target(
    module, measure, words, tiny, monkeypatch
):
    row = measured(
        module, measure, words, tiny, monkeypatch, Clock((3.0, 2.0, 4.0), (8.0, 2.0, 2.0))
    )
    assert row.value == 1.5  # medians 3 and 2
    assert (row.low, row.high) == (0.375, 2.0)  # 3 / 8 and 4 / 2
    assert (row.ours, row.reference, row.unit) == (3.0, 2.0, "s")
    for factor, met, verdict in ((0.99, True, "met"), (1.01, False, "MISSED")):
        clock = Clock((factor * row.bound,), (1.0,))
        judged = measured(module, measure, words, tiny, monkeypatch, clock)
        assert judged.met is met
        assert cells(judged)[-1] == verdict
        assert (words in summary([judged])) != met, "a miss is named, and only a miss"


def test_the_epochs_of_the_head_are_extrapolated_from_one_batch(tiny, monkeypatch):
    clock = Clock((0.5,), (2.0,))
    row = measured(head, head.head_row, "head fit", tiny, monkeypatch, clock)
    batches = head.PUBLISHED_HEAD_EPOCHS * tiny.head_images / tiny.batch
    assert row.reference == 2.0 * batches
    assert row.value == 2.0 * batches / 0.5
    assert "extrapolated" in row.note
    assert notes([row]) == [f"{row.work}: {row.note}"]
    for factor, met in ((1.01, True), (0.99, False)):
        clock = Clock((1.0,), (factor * row.bound / batches,))
        assert measured(head, head.head_row, "head fit", tiny, monkeypatch, clock).met is met


def test_predictions_are_judged_by_the_networks_throughput(tiny, monkeypatch):
    row = measured(
        serving, serving.predict_row, "predict 5 files", tiny, monkeypatch, Clock((4.0,), (3.0,))
    )
    assert (row.value, row.at_least, row.met) == (0.75, True, False)


def test_every_client_is_answered_or_told_to_come_again(tiny, monkeypatch):
    clock = Clock((1.0,), (1.0,))
    row = measured(serving, serving.explain_rows, "POST /api/explain, 4", tiny, monkeypatch, clock)
    assert "4 answered, 0 told to come again (503), 0 failed" in row.note


def test_the_fine_loss_is_as_many_times_faster_as_the_times_say(tiny, monkeypatch):
    monkeypatch.setattr(fine, "peaks_in_child", lambda *_: Peaks(1, None, 1))
    row = _fine_row(tiny, monkeypatch, Clock((2.0,), (30.0,)), "time")
    assert (row.value, row.at_least, row.met) == (15.0, True, True)
    assert _fine_row(tiny, monkeypatch, Clock((2.0,), (2.0,)), "time").met is False


def _fine_row(tiny, monkeypatch, clock: Clock, kind: str) -> Row:
    monkeypatch.setattr(fine, "in_turns", clock)
    (row,) = [row for row in fine.fine_rows(tiny) if row.work.endswith(f": {kind}")]
    return row


def test_memory_is_compared_in_medians_of_megabytes(tiny, monkeypatch):
    peaks = {
        "fine_peaks": iter([Peaks(3_000_000, 5_000_000, 10)] * 2 + [Peaks(9_000_000, 1, 10)]),
        "upsampled_peaks": iter([Peaks(60_000_000, 20_000_000, 20)] * 3),
    }
    monkeypatch.setattr(fine, "peaks_in_child", lambda name, *_: next(peaks[name.split(":")[1]]))
    monkeypatch.setattr(fine, "in_turns", Clock((1.0,), (1.0,)))
    found = list(fine.fine_rows(replace(tiny, children=3)))
    (tensors,) = [row for row in found if row.work.endswith("peak of tensors")]
    (resident,) = [row for row in found if row.work.endswith("peak of resident memory")]
    assert (tensors.ours, tensors.reference, tensors.value) == (3.0, 60.0, 20.0)
    assert (resident.ours, resident.reference, resident.value) == (5.0, 20.0, 4.0)
    assert (tensors.met, resident.met) == (True, False)


def test_where_resident_memory_is_unknown_its_row_is_left_out(tiny, monkeypatch):
    monkeypatch.setattr(fine, "peaks_in_child", lambda *_: Peaks(1, None, 1))
    monkeypatch.setattr(fine, "in_turns", Clock((1.0,), (1.0,)))
    assert not [row for row in fine.fine_rows(tiny) if "resident" in row.work]


def test_a_fine_loss_that_differs_from_upsampling_is_missed(tiny, monkeypatch):
    monkeypatch.setattr(fine, "peaks_in_child", lambda *_: Peaks(1, None, 1))
    monkeypatch.setattr(fine, "in_turns", Clock((1.0,), (1.0,)))
    monkeypatch.setattr(fine.FineProblem, "difference", lambda self: 1e-3)
    (row,) = [row for row in fine.fine_rows(tiny) if row.work.endswith("difference")]
    assert (row.value, row.met) == (1e-3, False)


def test_help_is_the_time_over_pythons_own_start(tiny, monkeypatch):
    clock = Clock((1.0, 1.5, 1.25), (0.5, 0.25, 0.5))
    row = measured(startup, startup.help_row, "protopyramid --help", tiny, monkeypatch, clock)
    assert (row.value, row.low, row.high) == (0.75, 0.5, 1.25)
    assert row.met is (row.bound >= 0.75)


# -- judging -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("time", "met"), [(1.1, True), (1.2, True), (1.3, False)])
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


def test_real_benchmarks_measure_the_preset_unchanged():
    for settings in (FULL, QUICK):
        assert settings.config().model_dump() == replace(FULL, overrides={}).config().model_dump()


def test_the_share_of_other_programs_leaves_out_our_own_work(monkeypatch):
    from protopyramid.benchmarks import report

    busy, own, clock = iter((100.0, 106.0)), iter((10.0, 14.0)), iter((0.0, 10.0))
    monkeypatch.setattr(report, "_busy_seconds", lambda: next(busy))
    monkeypatch.setattr(report, "_own_seconds", lambda: next(own))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert OtherPrograms().share == pytest.approx((6 - 4) / (2 * 10))


# -- other runtimes ------------------------------------------------------------------------------


def test_a_single_image_is_timed_in_onnxruntime_and_a_missing_compiler_is_reported(
    tiny, monkeypatch
):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.setattr(inference, "compile_network", lambda model, size: "no C++ compiler")
    with pytest.warns(UserWarning, match=r"no row for torch.compile: no C\+\+ compiler"):
        found = list(inference.latency_rows(replace(tiny, latency=True)))
    assert [row.work for row in found] == ["forward, 1 image: onnxruntime"]
    assert found[0].met is None and found[0].value > 0


def test_a_compiled_network_has_its_row_and_missing_libraries_are_reported(tiny, monkeypatch):
    def missing(*_):
        raise UserError("install protopyramid[export]")

    monkeypatch.setattr(inference, "to_onnx", missing)
    monkeypatch.setattr(inference, "compile_network", lambda model, size: None)
    with pytest.warns(UserWarning, match=r"no row for onnxruntime: install"):
        found = list(inference.latency_rows(replace(tiny, latency=True)))
    assert [row.work for row in found] == ["forward, 1 image: torch.compile"]
