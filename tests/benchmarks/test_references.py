"""The reference sides do the same work as ours: the same numbers, another way."""

import torch

from protopyramid.benchmarks.fine import FineProblem
from protopyramid.benchmarks.references import (
    BareClassifier,
    BareStep,
    LoopedProjection,
    pixel_weights,
    upsampled_fine_loss,
)
from protopyramid.benchmarks.settings import TrainingStep, fetched_images, fresh_model, train_steps
from protopyramid.losses import fine_annotation
from protopyramid.model.backbones import IMAGE
from protopyramid.training.patches import PyramidBatch
from protopyramid.training.projection import CandidateCollector, choose


def test_the_upsampled_fine_loss_equals_ours_with_its_gradient(tiny):
    problem = FineProblem.of(tiny.config(), 3)
    assert problem.prototypes == 40 and len(problem.maps) == 4
    assert problem.difference() < 1e-5


def test_the_upsampled_fine_loss_weighs_both_sides_of_the_outline():
    maps = torch.full((1, 1, 2, 2), 3.0)
    masks = torch.tensor([[[1, 0], [0, 0]]], dtype=torch.uint8)
    inside, outside = torch.tensor([[0.5]]), torch.tensor([[1.0]])
    weights = pixel_weights(masks, inside, outside)
    assert weights.tolist() == [[[[0.5, 1.5], [1.5, 1.5]]]]
    loss = upsampled_fine_loss(maps, weights)
    torch.testing.assert_close(loss, torch.tensor(3.0 * (0.25 + 3 * 2.25) ** 0.5))
    torch.testing.assert_close(loss, fine_annotation(maps, masks, inside, outside))


def test_the_looped_projection_finds_the_patches_that_ours_finds(tiny):
    config = tiny.config()
    model = fresh_model(config)
    loop = LoopedProjection(model.prototypes)
    collector = CandidateCollector(model.prototypes, config.projection)
    torch.manual_seed(1)
    for first in range(0, 12, 4):
        images = torch.arange(first, first + 4)
        with torch.no_grad():
            z = model.pyramid(torch.randn(4, 3, 32, 32))
        labels = images % 4
        loop.update(z, images, labels)
        masks = torch.zeros(4, 32, 32, dtype=torch.uint8)
        free = torch.zeros(4, dtype=torch.bool)
        collector.update(PyramidBatch(z, images, labels, masks, free))
    found = collector.result()
    chosen = choose(found, model.prototypes.classes, model.prototypes.levels, "none")
    assert chosen.image.tolist() == loop.image.tolist()
    assert torch.stack([chosen.row, chosen.col], 1).tolist() == loop.cell.tolist()
    nearest = found.vector[:, 0].numpy()
    assert (nearest == loop.vectors).all()


def test_both_training_steps_learn(tiny):
    config = tiny.config(**{"model.backbone.batch_norm": False})
    model = fresh_model(config)
    step = list(train_steps(config))[-1]
    assert "backbone" in step.learns
    ours = TrainingStep(config, fresh_model(config), step)
    classifier = BareClassifier(model.backbone.features, model.backbone.channels[5], 4)
    bare = BareStep(classifier, step)
    batch, labels = fetched_images(config, 4), torch.arange(4)
    before = [p.detach().clone() for p in (ours.model.backbone.features[0].weight,)]
    first, bare_first = ours(batch, labels), bare(batch.maps[IMAGE], labels)
    for _ in range(5):
        last, bare_last = ours(batch, labels), bare(batch.maps[IMAGE], labels)
    assert last < first and bare_last < bare_first
    assert not torch.equal(ours.model.backbone.features[0].weight, before[0])
