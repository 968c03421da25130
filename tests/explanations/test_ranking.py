"""Which cases count as explained best and worst."""

from __future__ import annotations

import numpy as np
import pytest

from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Manifest, Sample
from protopyramid.explanations.explanation import explain_prepared
from protopyramid.explanations.ranking import RankedImage, best_and_worst, rank
from protopyramid.runs.run import Run


@pytest.fixture
def sample(manifest: Manifest) -> Sample:
    return next(each for each in manifest.samples if each.label == "spiculated")


def test_ranking_puts_right_answers_before_wrong_ones(run: Run, manifest: Manifest) -> None:
    ranked = rank(run, manifest.split("test"))
    assert ranked and all(each.inside is not None and 0 <= each.inside <= 1 for each in ranked)
    rights = [each.right for each in ranked]
    assert rights == sorted(rights, reverse=True)


def test_inside_is_the_share_of_three_regions_and_chance_that_of_the_image(
    run: Run, manifest: Manifest
) -> None:
    for each in rank(run, manifest.split("test"))[:4]:
        prepared = prepare_sample(each.sample, run.config.data)
        mask = prepared.mask.numpy().astype(bool)
        explanation = explain_prepared(run, prepared.image)
        name = explanation.predicted
        parts = sorted(explanation.prototypes, key=lambda part: -part.contributions[name])[:3]
        shares = []
        for part in parts:
            activation = explanation.region(part.index).activation
            kept = activation >= np.quantile(activation, 0.95)
            shares.append((kept & mask).sum() / kept.sum())
        assert each.predicted == name
        assert each.inside == pytest.approx(np.mean(shares), abs=1e-3)
        assert each.chance == pytest.approx(mask.mean())


@pytest.mark.parametrize(
    ("inside", "chance", "expected"),
    [
        (0.1, 0.05, False),  # twice chance, yet nearly all of it is elsewhere
        (0.5, 0.0, True),
        (0.49, 0.0, False),
        (0.5, 0.45, False),  # half inside, as by chance
        (0.8, 0.45, True),
        (0.6, 0.7, False),
        (1.0, 1.0, False),  # the whole image is annotated: nothing can be said
        (None, None, False),
    ],
)
def test_the_right_reason_is_at_least_half_inside_and_far_above_chance(
    inside: float | None, chance: float | None, expected: bool, sample: Sample
) -> None:
    assert RankedImage(sample, "spiculated", 0.9, inside, chance).right_reason is expected


def test_best_are_right_for_the_right_reason_and_worst_are_not(sample: Sample) -> None:
    good = RankedImage(sample, "spiculated", 0.9, 0.7, 0.1)
    elsewhere = RankedImage(sample, "spiculated", 0.99, 0.1, 0.1)
    wrong = RankedImage(sample, "indistinct", 0.2, 0.9, 0.1)
    ranked = sorted([elsewhere, wrong, good], key=lambda each: each.key, reverse=True)
    assert best_and_worst(ranked, 2) == ([good], [wrong, elsewhere])
    assert best_and_worst([elsewhere, wrong], 2) == ([], [wrong, elsewhere])
    assert best_and_worst([good], 2) == ([good], [])


def test_without_annotations_the_best_are_right_and_the_worst_wrong(sample: Sample) -> None:
    ranked = [RankedImage(sample, "spiculated", share) for share in (0.9, 0.8, 0.7)]
    wrong = RankedImage(sample, "indistinct", 0.3)
    best, worst = best_and_worst([*ranked, wrong], 2)
    assert best == ranked[:2] and worst == [wrong]
