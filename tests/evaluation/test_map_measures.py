"""Measures of a run's maps against one prototype and image at a time, and at chance for random weights."""

from __future__ import annotations

import numpy as np
import torch

from protopyramid.evaluation.evaluate import annotation_masks
from protopyramid.evaluation.faithfulness import measure_faithfulness
from protopyramid.evaluation.map_measures import (
    ImageUnderTest,
    PrototypePass,
    focused_and_dual,
    map_measures,
)
from protopyramid.evaluation.split import evaluated_split
from protopyramid.explanations.evidence import perturbed_image, upsampled
from protopyramid.metrics.faithfulness import blurred, replace_regions
from protopyramid.metrics.prototype_measures import UNKNOWN, explanation_size
from protopyramid.model.activation import strongest_region

SMALL = {
    "model.prototypes.counts": {"3": 2, "5": 2},
    "model.prototypes.negative_counts": {"5": 1},
}


def images_of(run, count: int) -> list[ImageUnderTest]:
    from protopyramid.data.store import ImageStore

    chosen = evaluated_split(run, None, "test")
    store = ImageStore(chosen.samples, run.config.data)
    rows = [n for n, each in enumerate(chosen.samples) if each.label != "negative"][:count]
    found = []
    for number, row in enumerate(rows):
        loaded = store.load([row])
        label = run.config.data.classes.index(chosen.samples[row].label)
        masks = annotation_masks(chosen, [row], loaded)
        found.append(ImageUnderTest(loaded.images[0], None, label, number, *masks))
    return found


def test_drops_are_those_of_one_region_at_a_time(new_run) -> None:
    run = new_run(**SMALL)
    (image,) = images_of(run, 1)
    perturbed = perturbed_image(run.model, run.config.data, image.pixels, None)
    tested = [0, 9]
    shown = strongest_region(upsampled(perturbed, tested))
    found = focused_and_dual(perturbed, tested, shown)
    for row, index in enumerate(tested):
        level, place = perturbed.level_and_row(index)
        before = perturbed.before[level][0, place].double()
        for column, region in enumerate((shown[row], ~shown[row])):
            drops = []
            for changed in (blurred(image.pixels), 0.7 * image.pixels):
                picture = replace_regions(image.pixels, changed, region[None])
                after = perturbed.maps_of(picture)[level][0, place].double()
                drops.append((before.max() - after.max()) / (before.max() - before.mean()))
            assert abs(found[row, column] - float(sum(drops)) / 2) < 1e-3


def test_measures_are_shares_and_pointing_is_that_of_the_peak(new_run) -> None:
    run = new_run(**SMALL)
    for image in images_of(run, 2):
        perturbed = perturbed_image(run.model, run.config.data, image.pixels, None)
        tested = [1, 8]
        maps = upsampled(perturbed, tested)
        found = map_measures(run, perturbed, image, tested, strongest_region(maps))
        assert found.shape == (2, 11)
        for row, activation in enumerate(maps):
            place = np.unravel_index(int(activation.argmax()), activation.shape)
            if (activation == activation.max()).sum() == 1:
                assert found[row, 3] == float(image.fine[0][place])
            assert found[row, 7] == image.fine.double().mean().item()
        assert ((found[:, 3:] >= 0) & (found[:, 3:] <= 1)).all()


def part_at(image: ImageUnderTest, activation: np.ndarray) -> str:
    """What the highest pixel of a map lies on, in words."""
    place = np.unravel_index(int(activation.argmax()), activation.shape)
    if image.fine[0].numpy()[place]:
        return "annotation"
    return "box" if image.lesion[0].numpy()[place] else "surroundings"


def strongest_pixels(activation: np.ndarray) -> set[int]:
    """The pixels at or above the 95th percentile."""
    return set(np.flatnonzero(activation >= np.quantile(activation, 0.95)).tolist())


def test_stability_and_continuity_are_those_of_plain_loops(new_run) -> None:
    """Noise of deviation .2 (at most .25) in normalised values: peaks on one part, and sets of pixels."""
    run = new_run(**SMALL)
    continuities = []
    for image in images_of(run, 4):
        perturbed = perturbed_image(run.model, run.config.data, image.pixels, None)
        tested = [1, 8, 12]
        shown = strongest_region(upsampled(perturbed, tested))
        found = map_measures(run, perturbed, image, tested, shown)
        draw = torch.randn(
            image.pixels.shape, generator=torch.Generator().manual_seed(image.number)
        )
        noise = np.clip(0.2 * draw.numpy(), -0.25, 0.25) * run.config.data.std[0]
        again = perturbed_image(
            run.model, run.config.data, image.pixels + torch.from_numpy(noise), None
        )
        for row, index in enumerate(tested):
            before, after = (upsampled(each, [index])[0].numpy() for each in (perturbed, again))
            first, second = strongest_pixels(before), strongest_pixels(after)
            assert found[row, 9] == (part_at(image, before) == part_at(image, after))
            assert abs(found[row, 10] - len(first & second) / len(first | second)) < 0.01
            continuities.append(found[row, 10])
    assert min(continuities) < 1  # the noise does something, or the test shows nothing
    assert np.mean(continuities) > 0


def test_measures_over_prototypes_take_own_class_images(new_run) -> None:
    run = new_run(**SMALL)
    gathered, images = PrototypePass(run), images_of(run, 6)
    for image in images:
        gathered.update(image)
    owners = run.model.prototypes.classes
    for row, image in zip(gathered._parts, images, strict=True):
        assert [part == UNKNOWN for part in row] == [int(owner) != image.label for owner in owners]
    weights = np.ones((5, len(images)))
    everything = gathered.of_all(weights)
    assert everything is not None and 0 <= everything.consistency.mean <= 1
    assert everything.consistency.ci95 == (everything.consistency.mean,) * 2
    weight = run.model.head.weight.detach().double().numpy()
    first = gathered._scores[0]
    predicted = int((weight @ first).argmax())
    assert gathered._sizes[0] == explanation_size((weight[predicted] * first)[None])[0]


def test_a_network_with_random_weights_points_at_chance(new_run) -> None:
    """Energy of rises inside the mask, over many random prototypes: the mask's share of the image."""
    counts = {"model.prototypes.counts": {"3": 6}, "model.prototypes.negative_counts": {"3": 1}}
    differences = []
    for seed in range(3):
        run = new_run(**counts, **{"train.seed": seed})
        for image in images_of(run, 4):
            perturbed = perturbed_image(run.model, run.config.data, image.pixels, None)
            tested = list(range(len(run.prototypes)))
            maps = upsampled(perturbed, tested)
            found = map_measures(run, perturbed, image, tested, strongest_region(maps))
            differences.append(float(np.mean(found[:, 5] - found[:, 7])))
    assert abs(np.mean(differences)) < 0.12


def test_a_black_box_has_map_measures_but_none_over_prototypes(new_run) -> None:
    run = new_run(preset="vgg16")
    found = measure_faithfulness(run, evaluated_split(run, None, "test"), images=1, resamples=3)
    assert found.compactness is None and found.used is None and found.all.prototypes is None
    assert found.all.measures is not None and found.all.measures.contrastivity.mean is None
