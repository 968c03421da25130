"""Patches are allocated evenly to patients and films."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.data.negatives.sampling import patches_per_film


@given(st.integers(0, 200), st.lists(st.sampled_from("abcde"), min_size=1, max_size=12))
def test_patients_and_their_films_give_alike(count: int, patients: list[str]) -> None:
    counts = patches_per_film(count, patients, np.random.default_rng(0))
    assert sum(counts) == count
    by_patient: dict[str, list[int]] = {}
    for patient, each in zip(patients, counts, strict=True):
        by_patient.setdefault(patient, []).append(each)
    totals = [sum(each) for each in by_patient.values()]
    assert max(totals) - min(totals) <= 1
    assert all(max(each) - min(each) <= 1 for each in by_patient.values())
