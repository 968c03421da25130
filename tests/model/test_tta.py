"""Test-time augmentation: each transform is undone exactly, and the mean does not depend on orientation."""

import numpy as np
import pytest
import torch

from protopyramid.config import load_config
from protopyramid.model import build_model
from protopyramid.model.tta import tta_transforms

PRESETS = ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"]
SIZE = 64


def network(name, count, double=True):
    torch.manual_seed(0)
    model = build_model(load_config(name, {"model.backbone.width": 0.0625, "model.tta": count}))
    return (model.double() if double else model).eval()


def image(seed=1, size=(SIZE, SIZE)):
    return torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(seed)).double()


def every_way_up(images):
    """The eight symmetries, by numpy."""
    turned = [np.rot90(images.numpy(), times, (2, 3)) for times in range(4)]
    return [torch.from_numpy(x.copy()) for each in turned for x in (each, each[..., ::-1])]


def test_the_eight_transforms_are_the_symmetries_of_a_square_and_the_first_is_the_identity():
    images = image()
    seen = [transform(images) for transform, _ in tta_transforms(8)]
    assert seen[0].equal(images)
    expected = every_way_up(images)
    assert all(any(one.equal(other) for other in expected) for one in seen)
    assert all(any(one.equal(other) for one in seen) for other in expected)


@pytest.mark.parametrize("count", [1, 4, 8])
def test_a_transform_is_undone(count):
    images = image(size=(32, 48))
    assert [undo(transform(images)).equal(images) for transform, undo in tta_transforms(count)] == [
        True
    ] * count


def test_four_transforms_keep_height_and_width():
    assert {transform(image(size=(32, 48))).shape for transform, _ in tta_transforms(4)} == {
        (2, 3, 32, 48)
    }


@pytest.mark.parametrize("name", PRESETS)
def test_evidence_is_the_mean_over_the_augmented_copies(name):
    model, single, images = network(name, 8), network(name, 1), image()
    with torch.no_grad():
        found = model(images)
        parts = [single(each) for each in every_way_up(images)]
        for ours, naive in (
            (found.scores, [part.scores for part in parts]),
            (found.closeness, [part.closeness for part in parts]),
            (found.logits, [part.logits for part in parts]),
        ):
            torch.testing.assert_close(ours, sum(naive) / 8)
    for level, maps in found.maps.items():
        expected = np.zeros(maps.shape)
        for number, part in enumerate(parts):
            turned = part.maps[level].numpy()
            upright = turned[..., ::-1] if number % 2 else turned
            expected += np.rot90(upright, -(number // 2), (2, 3)) / 8
        np.testing.assert_allclose(maps.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_with_eight_copies_the_answer_does_not_depend_on_the_orientation(name):
    model, images = network(name, 8), image()
    with torch.no_grad():
        answers = [model(each).logits for each in every_way_up(images)]
        one = [model.forward_once(each).logits for each in every_way_up(images)]
    for answer in answers[1:]:
        torch.testing.assert_close(answer, answers[0])
    assert not torch.allclose(one[2], one[0])  # which a single copy does


def test_contributions_of_mean_scores_add_up_to_the_logits():
    model = network("fpn-iaia-bl", 4)
    with torch.no_grad():
        found = model(image())
    torch.testing.assert_close(found.scores @ model.head.weight.T, found.logits)


def test_images_that_are_not_square_can_be_turned():
    with torch.no_grad():
        found = network("fpn-iaia-bl", 8)(image(size=(32, 48)))
    assert found.maps[2].shape[-2:] == (8, 12)


def test_no_tta_is_the_default_and_training_never_uses_it():
    model, images = network("fpn-iaia-bl", 8), image()
    plain = network("fpn-iaia-bl", 1)
    assert load_config("fpn-iaia-bl").model.tta == 1
    with torch.no_grad():
        assert model.forward_once(images).scores.equal(plain(images).scores)
        z = model.pyramid(images)
        assert model.evidence_from_pyramid(z).scores.equal(plain(images).scores)
