"""Statistics of a reader study agree with loops over the readings, written out one by one."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.metrics.reader_study import Answers, Readings, Summary, summarise

CLASSES = ["circumscribed", "indistinct", "spiculated", "negative"]
RESAMPLES, SEED = 40, 7


def made_up(seed: int = 0, people: int = 3, cases: int = 60, missing: float = 0.1) -> Readings:
    """Readings with some answers missing, and some cases of unknown truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, cases)
    shape = (people, cases)

    def answers(skill: float, lacking: float) -> Answers:
        margin = np.where(rng.random(shape) < skill, truth, rng.integers(0, 4, shape))
        margin = np.where(rng.random(shape) < lacking, -1, margin)
        return Answers(margin, rng.integers(0, 101, shape).astype(float), rng.gamma(3, 9, shape))

    model = np.where(rng.random(cases) < 0.6, truth, rng.integers(0, 4, cases))
    model = np.broadcast_to(model, shape).copy()
    unaided, aided = answers(0.5, 0.0), answers(0.7, missing)
    follow = rng.random(shape) < 0.4
    aided = Answers(
        np.where(follow & (aided.margin >= 0), model, aided.margin), aided.confidence, aided.seconds
    )
    truth = np.where(rng.random(cases) < 0.05, -1, truth)
    patients = [f"p{number // 2}" for number in range(cases)]
    return Readings(unaided, aided, truth, model, patients, [f"r{j}" for j in range(people)])


def rows_of(readings: Readings, reader: int, times: Any = None) -> list[dict[str, Any]]:
    """The complete readings of one reader, each as often as its case is drawn."""
    found = []
    for case, truth in enumerate(readings.truth.tolist()):
        row = {"case": case, "truth": truth, "model": int(readings.model[reader, case])}
        for stage in ("unaided", "aided"):
            side = getattr(readings, stage)
            row[stage] = int(side.margin[reader, case])
            row[f"{stage}_confidence"] = float(side.confidence[reader, case])
            row[f"{stage}_seconds"] = float(side.seconds[reader, case])
        if row["unaided"] >= 0 and row["aided"] >= 0:
            found += [row] * (1 if times is None else int(times[case]))
    return found


def naive_auroc(rows: list[dict[str, Any]], stage: str) -> float:
    """One-vs-rest among the three margins: the signed confidence ranks."""
    rows = [row for row in rows if row["truth"] in (0, 1, 2)]
    areas = []
    for number in (0, 1, 2):
        scores = [row[f"{stage}_confidence"] * (1 if row[stage] == number else -1) for row in rows]
        areas.append(roc_auc_score([row["truth"] == number for row in rows], scores))
    return float(np.mean(areas))


def of_readers(readings: Readings, value: Any, reader_times: Any, case_times: Any) -> float:
    """The mean of a metric over readers as often as they are drawn."""
    values = []
    for reader in range(len(readings.readers)):
        if reader_times[reader]:
            found = value(rows_of(readings, reader, case_times))
            values += [found] * int(reader_times[reader])
    return float(np.mean(values))


def draws(readings: Readings) -> tuple[Any, Any]:
    cases = resample_weights(readings.patients, RESAMPLES, SEED)
    return resample_weights(readings.readers, RESAMPLES, SEED + 1), cases


@pytest.fixture(scope="module")
def readings() -> Readings:
    return made_up()


@pytest.fixture(scope="module")
def summary(readings: Readings) -> Summary:
    return summarise(readings, CLASSES, "negative", RESAMPLES, SEED)


METRICS = {
    "auroc": naive_auroc,
    "seconds": lambda rows, stage: np.mean([row[f"{stage}_seconds"] for row in rows]),
    "confidence": lambda rows, stage: np.mean([row[f"{stage}_confidence"] for row in rows]),
    "accuracy": lambda rows, stage: np.mean(
        [row[stage] == row["truth"] for row in rows if row["truth"] >= 0]
    ),
    "kappa_truth": lambda rows, stage: cohen_kappa_score(
        *zip(*[(row[stage], row["truth"]) for row in rows if row["truth"] >= 0], strict=True)
    ),
    "kappa_model": lambda rows, stage: cohen_kappa_score(
        *zip(*[(row[stage], row["model"]) for row in rows], strict=True)
    ),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_and_its_interval_are_those_of_the_readings_written_out(
    readings: Readings, summary: Summary, name: str
) -> None:
    compared = getattr(summary, name)
    value = METRICS[name]
    once = [1] * len(readings.readers)
    points, drawn = {}, {}
    for stage in ("unaided", "aided"):
        points[stage] = of_readers(readings, lambda rows, s=stage: value(rows, s), once, None)
        drawn[stage] = [
            of_readers(readings, lambda rows, s=stage: value(rows, s), people, cases)
            for people, cases in zip(*draws(readings), strict=True)
        ]
        assert getattr(compared, stage).value == pytest.approx(points[stage], abs=1e-12)
        expected = np.quantile(drawn[stage], [0.025, 0.975])
        assert getattr(compared, stage).ci95 == pytest.approx(tuple(expected), abs=1e-9)
    assert compared.difference.value == pytest.approx(points["aided"] - points["unaided"])
    expected = np.quantile(np.subtract(drawn["aided"], drawn["unaided"]), [0.025, 0.975])
    assert compared.difference.ci95 == pytest.approx(tuple(expected), abs=1e-9)
    own = tuple(value(rows_of(readings, j), "aided") for j in range(3))
    assert compared.aided.per_reader == pytest.approx(own)


def test_agreement_between_readers_is_the_mean_kappa_of_pairs(
    readings: Readings, summary: Summary
) -> None:
    def kappa(a: int, b: int, times: Any = None) -> float:
        first, second = (
            {row["case"]: row["aided"] for row in rows_of(readings, each)} for each in (a, b)
        )
        both = [case for case in first if case in second]
        both = [case for case in both for _ in range(1 if times is None else int(times[case]))]
        return float(cohen_kappa_score([first[c] for c in both], [second[c] for c in both]))

    pairs = list(combinations(range(3), 2))
    found = summary.kappa_readers.aided
    assert found.value == pytest.approx(np.mean([kappa(*pair) for pair in pairs]))
    drawn = []
    for people, cases in zip(*draws(readings), strict=True):
        weights = [people[a] * people[b] for a, b in pairs]
        if sum(weights):
            values = [kappa(*pair, cases) for pair in pairs]
            drawn.append(np.average(values, weights=weights))
    assert found.ci95 == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-9)


RATES = {
    "changed": (lambda row: row["unaided"] != row["aided"], lambda row: True),
    "over_reliance": (
        lambda row: row["aided"] == row["model"],
        lambda row: row["unaided"] == row["truth"] != row["model"],
    ),
    "correction": (
        lambda row: row["aided"] == row["truth"],
        lambda row: row["unaided"] != row["truth"] == row["model"],
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_a_rate_counts_readings_one_by_one(readings: Readings, summary: Summary, name: str) -> None:
    happened, could = RATES[name]

    def counts(people: Any, cases: Any) -> tuple[int, int]:
        rows = [
            row
            for reader, times in enumerate(people)
            for _ in range(int(times))
            for row in rows_of(readings, reader, cases)
            if name == "changed" or row["truth"] >= 0
        ]
        rows = [row for row in rows if could(row)]
        return sum(map(happened, rows)), len(rows)

    found = getattr(summary, name)
    assert (found.happened, found.could) == counts([1, 1, 1], None)
    assert 0 < found.happened < found.could
    shares = [
        did / able
        for did, able in (
            counts(people, cases) for people, cases in zip(*draws(readings), strict=True)
        )
        if able
    ]
    assert found.ci95 == pytest.approx(tuple(np.quantile(shares, [0.025, 0.975])), abs=1e-9)
    assert sum(did for did, _ in found.per_reader) == found.happened


def test_intervals_of_several_readers_are_wider_than_of_cases_alone() -> None:
    """Readers of very different skill: drawing them matters."""
    several = made_up(3, people=6, missing=0.0)
    margin = several.aided.margin.copy()
    margin[:3] = np.where(several.truth >= 0, several.truth, 0)
    several = Readings(
        several.unaided,
        Answers(margin, several.aided.confidence, several.aided.seconds),
        several.truth,
        several.model,
        several.patients,
        several.readers,
    )
    low, high = summarise(several, CLASSES, "negative", 200).accuracy.aided.ci95 or (0, 0)
    right = margin[:, several.truth >= 0] == several.truth[several.truth >= 0]
    cases = np.random.default_rng(0).integers(0, right.shape[1], (200, right.shape[1]))
    alone = np.quantile([right[:, each].mean() for each in cases], [0.025, 0.975])
    assert high - low > 1.5 * (alone[1] - alone[0])


def test_one_reader_is_said_to_be_one(readings: Readings) -> None:
    one = made_up(people=1)
    found = summarise(one, CLASSES, "negative", RESAMPLES)
    assert "one reader" in found.method and "multi-reader" not in found.method
    assert found.auroc.aided.ci95 is not None
    assert found.kappa_readers.aided.value is None and found.kappa_readers.aided.ci95 is None


def test_a_study_without_readings_has_no_numbers() -> None:
    nothing = Answers(np.full((0, 4), -1), np.zeros((0, 4)), np.zeros((0, 4)))
    readings = Readings(
        nothing, nothing, np.zeros(4, np.int64), np.zeros((0, 4), np.int64), list("abcd"), []
    )
    found = summarise(readings, CLASSES, "negative", RESAMPLES)
    assert (found.readings, found.auroc.aided.value, found.over_reliance.share) == (0, None, None)


def test_cases_of_one_patient_have_no_interval() -> None:
    single = made_up(cases=2, missing=0.0)  # two cases of one patient
    found = summarise(single, CLASSES, "negative", RESAMPLES)
    assert found.readings == 6 and found.seconds.aided.value is not None
    assert found.seconds.aided.ci95 is None and found.changed.ci95 is None
