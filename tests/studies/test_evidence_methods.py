"""The study of rankings: each of them, on every level, and the best is the one that is used."""

from __future__ import annotations

from protopyramid.evaluation.split import evaluated_split
from protopyramid.explanations.evidence import SHARES
from protopyramid.studies.evidence_methods import areas_by_method, rankings


def test_each_ranking_has_a_mean_area_on_each_level(new_run) -> None:
    counts = {"model.prototypes.counts": {"3": 1, "5": 1}}
    run = new_run(**counts, **{"model.prototypes.negative_counts": {"5": 1}})
    found = areas_by_method(run, evaluated_split(run, None, "test"), images=1)
    assert list(found) == list(rankings(run))
    for levels in found.values():
        assert list(levels) == [3, 5]
        assert all(SHARES[0] * 0.9 <= area <= 1 for area in levels.values())
