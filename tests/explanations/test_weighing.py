"""Asking back: weighed explanations against sums computed by hand, and what their figure and JSON say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.figures.strokes import TextStroke
from protopyramid.runs.run import Run


def test_a_weighed_prototype_counts_so_many_times_as_much(run: Run, lesion: Path) -> None:
    before = run.explain(lesion, evidence=False)
    factors = {0: 0.0, 3: 2.0}
    after = before.weighed(factors)
    expected = {
        name: math.fsum(
            factors.get(p.index, 1.0) * p.contributions[name] for p in before.prototypes
        )
        for name in before.logits
    }
    assert after.logits == pytest.approx(expected, abs=1e-12)
    assert after.predicted == max(expected, key=lambda name: expected[name])
    total = sum(math.exp(value - max(expected.values())) for value in expected.values())
    assert after.probabilities[after.predicted] == pytest.approx(1 / total)
    assert after.weighed({0: 1.0}) is before  # nothing is changed any more
    assert (
        after.weighed({3: 2.0}).logits == before.weighed({3: 2.0}).logits
    )  # not on top of another


def test_the_figure_and_the_json_show_what_was_changed(run: Run, lesion: Path) -> None:
    before = run.explain(lesion, evidence=False)
    after = before.weighed({0: 0.0, 3: 0.5})
    words = [stroke.text for stroke in after.sheet().strokes if isinstance(stroke, TextStroke)]
    assert any("changed by a reader" in text for text in words)
    assert any("comparison 0 off, 3 x 0.50" in text for text in words)
    assert any(f"The model itself: {before.predicted}" in text for text in words)
    plain = [stroke.text for stroke in before.sheet().strokes if isinstance(stroke, TextStroke)]
    assert not any("changed" in text.lower() for text in plain)
    content = after.to_json()
    assert content["asked_back"]["factors"] == {"0": 0.0, "3": 0.5}
    assert content["asked_back"]["logits"] == after.logits
    assert content["logits"] == before.logits and "asked_back" not in before.to_json()


@pytest.mark.parametrize("factors", [{99: 0}, {-1: 0}, {0: math.inf}, {"a": 1}, [1, 2]])
def test_factors_that_cannot_be_are_refused(run: Run, lesion: Path, factors: object) -> None:
    with pytest.raises(UserError, match="factors"):
        run.explain(lesion, evidence=False).weighed(factors)  # type: ignore[arg-type]


def test_many_changes_are_counted(run: Run, lesion: Path) -> None:
    explanation = run.explain(lesion, evidence=False)
    changed = explanation.weighed({index: 0.5 * (index % 2) for index in range(6)})
    assert "3 comparisons off, 3 weighed otherwise" in changed.changed
