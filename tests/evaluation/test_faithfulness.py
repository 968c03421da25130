"""The faithfulness of a run against one region at a time, by the definitions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from protopyramid import api
from protopyramid.data.images import prepare_sample
from protopyramid.errors import UserError
from protopyramid.evaluation import faithfulness as module
from protopyramid.evaluation.faithfulness import FILLINGS, KINDS, measure_faithfulness
from protopyramid.evaluation.split import evaluated_split
from protopyramid.explanations.evidence import find_evidence
from protopyramid.explanations.saliency import grad_cam
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.faithfulness import fillings, kept, removed
from protopyramid.model.activation import activation_region
from protopyramid.prototypes.cases import prototype_map

SMALL = {
    "model.prototypes.counts": {"3": 1, "5": 2},
    "model.prototypes.negative_counts": {"5": 1},
}


def of_prototype(run, index: int):
    def map_of(images):
        with torch.no_grad():
            found = run.model(model_input(images, run.config.data, device_of(run.model)))
        return prototype_map(run.model, found.maps, index)

    return map_of


def one_lesion(run):
    """The test split with one lesion and one negative, so that nothing is left to chance."""
    chosen = evaluated_split(run, None, "test")
    lesion = next(n for n, each in enumerate(chosen.samples) if each.label == "spiculated")
    negative = next(n for n, each in enumerate(chosen.samples) if each.label == "negative")
    rows = (lesion, negative)
    return replace(
        chosen,
        samples=tuple(chosen.samples[n] for n in rows),
        hashes=tuple(chosen.hashes[n] for n in rows),
    )


def test_shown_and_evidence_regions_are_measured_as_defined(new_run) -> None:
    run = new_run(**SMALL)
    chosen = one_lesion(run)
    found = measure_faithfulness(run, chosen, seed=1, resamples=5)
    image, other = (prepare_sample(each, run.config.data).image for each in chosen.samples)
    size, filled = image.shape[-1], fillings(image, other)
    layer, number = run.model.prototypes, run.config.data.classes.index("spiculated")
    assert list(found.per_level) == ["3", "5"] and list(found.per_class) == ["spiculated"]
    for level in (3, 5):
        own = [
            index
            for index in range(len(layer.classes))
            if layer.classes[index] == number and layer.levels[index] == level
        ]
        maps = {index: of_prototype(run, index)(image[None])[0] for index in own}
        k = layer.pooling.patches(level, maps[own[0]].numel())
        index = max(
            own, key=lambda i: float(maps[i].flatten().topk(k).values.mean() - maps[i].mean())
        )
        group = found.per_level[str(level)]
        region = torch.from_numpy(activation_region(maps[index], size, size).mask)[None]
        arguments = (of_prototype(run, index), image, filled, region, k)
        assert group.pairs == group.images == 1
        assert group.shown.kept.mean == pytest.approx(kept(*arguments).item(), abs=1e-3)
        assert group.shown.removed.mean == pytest.approx(removed(*arguments).item(), abs=1e-3)
        for name, filling in zip(FILLINGS, filled, strict=True):
            alone = kept(arguments[0], image, filling[None], region, k).item()
            assert group.shown.kept_by_filling[name] == pytest.approx(alone, abs=1e-3)
        assert group.shown.area.mean == pytest.approx(region.double().mean().item())
        assert group.shown_elsewhere.area.mean == group.shown.area.mean
        assert group.evidence.kept.mean >= 0.9 - 1e-3
        assert group.evidence_elsewhere.area.mean == group.evidence.area.mean


def test_the_evidence_region_is_the_one_that_explanations_show(new_run, monkeypatch) -> None:
    run = new_run(**SMALL)
    chosen = one_lesion(run)
    image = prepare_sample(chosen.samples[0], run.config.data).image
    # With the filling of explanations, the same prototype has the same region.
    monkeypatch.setattr(module, "draw_images", lambda *_: [0])
    alone = replace(chosen, samples=chosen.samples[:1], hashes=chosen.hashes[:1])
    found = measure_faithfulness(run, alone, resamples=5)
    regions = find_evidence(run, image, list(range(len(run.prototypes))))
    shares = {each.share for each in regions.values() if each is not None}
    assert found.per_level["3"].evidence.area.mean in shares


def test_means_and_intervals_are_over_patients(new_run) -> None:
    run = new_run(**SMALL)
    chosen = evaluated_split(run, None, "test")
    found = measure_faithfulness(run, chosen, images=4, seed=2, resamples=50)
    assert found.images == 4 and found.all.pairs == 8
    total = sum(group.shown.kept.mean * group.pairs for group in found.per_class.values())
    assert total / 8 == pytest.approx(found.all.shown.kept.mean)
    low, high = found.all.shown.kept.ci95
    assert low <= found.all.shown.kept.mean <= high
    again = measure_faithfulness(run, chosen, images=4, seed=2, resamples=50)
    assert again == found
    assert "negative" not in found.per_class


def test_grad_cam_stands_in_for_the_prototypes_of_a_black_box(new_run) -> None:
    run = new_run(preset="vgg16")
    chosen = one_lesion(run)
    found = measure_faithfulness(run, chosen, resamples=5)
    image, other = (prepare_sample(each, run.config.data).image for each in chosen.samples)
    number = run.config.data.classes.index("spiculated")

    def map_of(images):
        ready = model_input(images, run.config.data, device_of(run.model))
        return grad_cam(run.model, ready, torch.full((len(images),), number))

    activation = map_of(image[None])[0]
    assert found.maps == "Grad-CAM" and list(found.per_level) == ["5"]
    assert found.all.other_prototype.kept.mean is None
    if found.all.shown.kept.mean is not None:
        k = round(0.05 * activation.numel())
        values = activation.flatten()
        region = (activation >= np.quantile(values.numpy(), 0.95))[None]
        expected = kept(map_of, image, fillings(image, other), region, k).item()
        assert found.all.shown.kept.mean == pytest.approx(expected, abs=1e-2)


def test_a_split_of_negatives_alone_is_refused(new_run) -> None:
    run = new_run(**SMALL)
    chosen = one_lesion(run)
    with pytest.raises(UserError, match="only images of class negative"):
        measure_faithfulness(run, replace(chosen, samples=chosen.samples[1:]))


def test_the_result_is_written_beside_the_evaluation(new_run, tmp_path) -> None:
    run = new_run(**SMALL)
    found, path = api.faithfulness(run, one_lesion(run))
    assert path == run.folder / "evaluation/test-faithfulness.json"
    content = json.loads(path.read_text())
    assert content == json.loads(json.dumps(found.to_json()))
    assert set(KINDS) <= set(content["per_level"]["5"])
    assert set(content["all"]["shown"]["kept_by_filling"]) == set(FILLINGS)
    other = tmp_path / "elsewhere.json"
    assert api.faithfulness(run, one_lesion(run), out=other)[1] == other and other.is_file()


def test_without_tta_the_maps_are_those_of_the_image_alone(new_run) -> None:
    run, four = new_run(**SMALL), new_run(**SMALL)
    four.model.load_state_dict(run.model.state_dict())
    four.model.tta = 4
    chosen = one_lesion(run)
    plain = measure_faithfulness(run, chosen, seed=1, resamples=5)
    alone = measure_faithfulness(four, chosen, seed=1, resamples=5, tta=False)
    mean = measure_faithfulness(four, chosen, seed=1, resamples=5)
    assert four.model.tta == 4 and (alone.tta, mean.tta) == (1, 4)
    assert alone.all == plain.all and alone.targets == plain.targets
    assert mean.all != plain.all
