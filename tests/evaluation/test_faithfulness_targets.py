"""Targets against values set by hand, and the prototypes that matter against the network itself."""

from __future__ import annotations

from dataclasses import replace

import torch

from protopyramid.data.images import prepare_sample
from protopyramid.evaluation.faithfulness import measure_faithfulness
from protopyramid.evaluation.faithfulness_results import (
    Faithfulness,
    RankingCurves,
    UsedPrototypes,
    read_faithfulness,
)
from protopyramid.evaluation.faithfulness_targets import judge, used_prototypes
from protopyramid.evaluation.split import evaluated_split
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.faithfulness import fillings, kept, largest_share, removed
from protopyramid.metrics.localisation import half_maximum_areas
from protopyramid.model.activation import activation_maps
from protopyramid.prototypes.cases import prototype_map
from protopyramid.runs import layout

SMALL = {
    "model.prototypes.counts": {"2": 1, "5": 1},
    "model.prototypes.negative_counts": {"5": 1},
}


def curves_at(kept_share: float, removed_share: float, of: RankingCurves) -> RankingCurves:
    count = len(of.shares)
    return replace(of, insertion=(kept_share,) * count, deletion=(removed_share,) * count)


def test_targets_are_met_exactly_up_to_their_limits(new_run) -> None:
    run = new_run(**SMALL)
    found = measure_faithfulness(run, evaluated_split(run, None, "test"), images=1, resamples=5)
    per_level = {
        level: replace(
            group,
            curves=curves_at(0.9, 0.3, group.curves),
            half_maximum_area=replace(group.half_maximum_area, mean=area),
        )
        for (level, group), area in zip(found.per_level.items(), (0.1, 0.301), strict=True)
    }
    used = UsedPrototypes("validation", 9, 40, tuple(range(20)), tuple(range(10, 30)))
    met = {each.name: each.met for each in judge(per_level, used)}
    assert met == {
        "level 2, best 8% of the image: kept": True,
        "level 2, best 8% of the image: left without it": False,
        "level 5, best 25% of the image: kept": True,
        "level 5, best 25% of the image: left without it": True,
        "half-maximum area, level 2 / level 5": True,
        "prototypes that matter, share": True,
    }
    fewer = replace(used, decisive=tuple(range(10, 29)))
    assert judge({}, fewer)[0].met is False and judge({}, None) == ()


def test_curves_areas_and_used_prototypes_are_those_of_one_image_at_a_time(new_run) -> None:
    run = new_run(**SMALL)
    chosen = evaluated_split(run, None, "test")
    lesion = next(n for n, each in enumerate(chosen.samples) if each.label == "spiculated")
    negative = next(n for n, each in enumerate(chosen.samples) if each.label == "negative")
    pair = tuple(chosen.samples[n] for n in (lesion, negative))
    found = measure_faithfulness(run, replace(chosen, samples=pair), resamples=5)
    image, other = (prepare_sample(each, run.config.data).image for each in pair)
    own = run.config.data.classes.index("spiculated")
    layer = run.model.prototypes
    index = next(
        j for j in range(len(layer.classes)) if layer.classes[j] == own and layer.levels[j] == 5
    )

    def map_of(images):
        with torch.no_grad():
            maps = run.model(model_input(images, run.config.data, device_of(run.model))).maps
        return prototype_map(run.model, maps, index)

    group, size = found.per_level["5"], image.shape[-1]
    activation = activation_maps(map_of(image[None])[None], size, size)[0]
    assert group.half_maximum_area.mean == half_maximum_areas(activation)[0]
    whole = torch.ones(1, size, size, dtype=torch.bool)
    k = layer.pooling.patches(5, map_of(image[None])[0].numel())
    nothing = removed(map_of, image, fillings(image, other), whole, k).item()
    for curves in (group.curves, group.curves_elsewhere):
        assert abs(curves.insertion[0] - nothing) < 1e-3 and curves.insertion[-1] == 1
        assert abs(curves.deletion[-1] - nothing) < 1e-3 and curves.deletion[0] == 1
        steps = zip(
            curves.shares, curves.shares[1:], curves.deletion, curves.deletion[1:], strict=False
        )
        area = sum((b - a) * (x + y) / 2 for a, b, x, y in steps)
        assert abs(curves.deletion_area.mean - area) < 1e-6
    from protopyramid.explanations import evidence as gradients

    perturbed = gradients.perturbed_image(run.model, run.config.data, image, other)
    ranking = gradients.Gradients(run.model, run.config.data).midpoint(perturbed, [index])
    region = largest_share(ranking, 0.25)
    expected = kept(map_of, image, fillings(image, other), region, k).item()
    assert abs(group.curves.at(0.25)[0] - expected) < 1e-3
    assert found.used is not None and found.used.prototypes == len(layer.classes)


def test_the_prototypes_that_matter_are_counted_on_validation(new_run) -> None:
    run = new_run(**SMALL)
    chosen = evaluated_split(run, None, "test")
    used = used_prototypes(run, chosen)
    validation = evaluated_split(run, None, "validation", force=True)
    assert used.split == "validation" and used.images == len(validation.samples)
    assert set(used.matter) == {*used.shown, *used.decisive}


def test_the_result_is_read_back(new_run) -> None:
    run = new_run(**SMALL)
    assert read_faithfulness(run.folder) is None
    chosen = evaluated_split(run, None, "test")
    found = measure_faithfulness(run, chosen, images=1, resamples=5)
    run.folder.write_json(layout.faithfulness("test"), found.to_json())
    again = read_faithfulness(run.folder)
    assert isinstance(again, Faithfulness) and again.to_json() == found.to_json()
