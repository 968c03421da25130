"""The flag rate on out-of-distribution images, kind by kind."""

from __future__ import annotations

import pytest
import torch

from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run
from protopyramid.evaluation.ood_check import flag_rates, flagged, ood_images
from protopyramid.evaluation.split import evaluated_split
from protopyramid.inference.ood import limits_for, write_threshold
from protopyramid.inference.prediction import predict_manifest


def test_ood_images_are_images_and_the_same_for_the_same_seed() -> None:
    images_in = torch.rand(5, 1, 64, 64)
    kinds = ood_images(images_in, seed=1)
    for images in kinds.values():
        assert images.shape == images_in.shape
        assert images.min() >= 0 and images.max() <= 1
    assert (kinds["constant"].flatten(1).std(1) == 0).all()
    assert torch.equal(kinds["inverted"], 1 - images_in)
    assert kinds["blurred"].flatten(1).std(1).max() < images_in.flatten(1).std(1).min()
    for drawn in ("text", "shapes", "checkerboard"):
        assert (kinds[drawn].flatten(1).std(1) > 0.01).all()
        assert torch.equal(kinds[drawn], ood_images(images_in, seed=1)[drawn])


@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "vgg16"])
def test_the_rate_is_that_of_predict_and_ood_images_are_flagged(
    preset: str, new_run, phantom_manifest
) -> None:
    run = new_run(preset=preset)
    chosen = evaluated_split(run, None, "test")
    with pytest.raises(UserError, match="--split validation"):
        flag_rates(run, chosen)
    write_threshold(run)
    found = flag_rates(run, chosen)
    records = predict_manifest(run, phantom_manifest, "test")
    flags = [each["unlike_training"] for each in records]
    assert found.in_distribution == pytest.approx(sum(flags) / len(flags))
    for kind in ("constant", "noise", "checkerboard", "text", "shapes", "inverted"):
        assert found.ood[kind] >= 0.9, kind


def test_evaluating_validation_makes_the_limits(new_run) -> None:
    run = new_run()
    evaluate_run(run, split="validation", bootstrap=5, pictures=False)
    limits = limits_for(run)
    assert limits is not None
    assert flagged(run, limits, torch.rand(2, 3, 64, 64)).all()
