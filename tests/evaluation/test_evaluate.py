"""The evaluation of a run: its figures are those of a plain computation, whatever the run or data."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from protopyramid.data.images import normalise, prepare_sample
from protopyramid.data.manifest import read_manifest
from protopyramid.evaluation.evaluate import evaluate_run, looking_elsewhere
from protopyramid.evaluation.results import read_evaluation
from protopyramid.metrics.localisation import (
    BothScales,
    LocalisationSummary,
    PairMean,
    PairMeanWithChance,
)
from protopyramid.metrics.prototype_health import duplicate_pairs
from protopyramid.model.activation import activation_maps
from protopyramid.prototypes.health import run_health, source_pointing
from protopyramid.runs.run import load_run

QUICK = {"bootstrap": 20, "pictures": False}


def alone(run, sample):
    """Evidence of one image, without batches or stores."""
    prepared = prepare_sample(sample, run.config.data)
    with torch.inference_mode():
        return run.model(normalise(prepared.image[None], run.config.data)), prepared


def test_the_figures_of_a_run_are_those_of_one_image_at_a_time(new_run, phantom_manifest) -> None:
    run = new_run()
    result = evaluate_run(run, **QUICK)
    samples = read_manifest(phantom_manifest).split("test")
    classes = run.config.data.classes
    owners, levels = run.model.prototypes.classes, run.model.prototypes.levels.tolist()
    probabilities, fine, lesion = [], [], []
    for sample in samples:
        evidence, prepared = alone(run, sample)
        probabilities.append(evidence.logits[0].double().softmax(0).numpy())
        if prepared.box is None:
            continue
        x0, y0, x1, y1 = (round(side) for side in prepared.box)  # whole pixels, for phantoms
        for index in (owners == classes.index(sample.label)).nonzero()[:, 0].tolist():
            level = levels[index]
            similarity = evidence.maps[level][:, index - levels.index(level)][None]
            activation = activation_maps(similarity, 64, 64)[0, 0].numpy().astype(np.float64)
            kept = activation >= np.percentile(activation, 95)
            fine.append((kept & prepared.mask.numpy().astype(bool)).sum() / kept.sum())
            lesion.append(kept[y0:y1, x0:x1].sum() / kept.sum())
    values, labels = np.array(probabilities), np.array([each.label for each in samples])
    assert result.n == len(samples) > 10
    margin = labels != "negative"
    for number, name in enumerate(classes[:3]):
        expected = roc_auc_score(labels[margin] == name, values[margin, number])
        assert result.auroc.per_class[name] == pytest.approx(expected, abs=1e-9)
    for number, name in enumerate(classes):
        expected = roc_auc_score(labels == name, values[:, number])
        assert result.auroc.with_negative.per_class[name] == pytest.approx(expected)
    right = np.array(classes)[values.argmax(1)] == labels
    assert result.accuracy == pytest.approx(right.mean())
    assert np.trace(result.confusion_matrix) == right.sum()
    precision = result.activation_precision
    assert precision.fine.mean == pytest.approx(np.mean(fine), abs=1e-3)
    assert precision.lesion.mean == pytest.approx(np.mean(lesion), abs=1e-3)
    assert list(precision.fine.per_level) == ["2", "3", "4", "5"]
    assert precision.fine.per_class["negative"] is None
    assert 0 < precision.fine.chance < precision.lesion.chance < 0.4


def test_files_are_written_and_the_json_is_the_result(new_run) -> None:
    run = new_run()
    result = evaluate_run(run, bootstrap=20)
    folder = run.folder / "evaluation"
    assert json.loads((folder / "test.json").read_text()) == result.to_json()
    assert read_evaluation(run.folder) == result
    assert {path.name for path in folder.iterdir()} == {
        "test.json",
        "test.csv",
        "test-confusion.png",
        "test-roc.png",
        "test-reliability.png",
    }
    assert (folder / "test-roc.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((folder / "test.csv").open(newline="")))
    assert len(rows) == result.n
    total = sum(float(rows[0][f"probability_{name}"]) for name in result.classes)
    assert total == pytest.approx(1)
    assert all((row["fine_precision"] == "") == (row["label"] == "negative") for row in rows)
    assert not result.leaked and result.per_patient is None


def test_evaluation_is_the_same_twice_and_for_any_batch_size(new_run) -> None:
    first = evaluate_run(new_run("a"), **QUICK)
    again = evaluate_run(new_run("b", **{"train.eval_batch_size": 5}), **QUICK)
    assert again.auroc == first.auroc
    assert again.rows == first.rows
    fine = [each.activation_precision.fine.mean for each in (first, again)]
    assert fine[0] == pytest.approx(fine[1], abs=1e-4)


def test_a_model_without_prototypes_has_null_activation_precision(new_run) -> None:
    result = evaluate_run(new_run(preset="vgg16"), **QUICK)
    assert result.auroc.mean is not None
    for scale in ("fine", "lesion"):
        found = getattr(result.activation_precision, scale)
        assert found.mean is None
        assert set(found.per_class.values()) == {None}
        assert found.per_level == {}
    assert result.health is None
    assert result.source_pointing.mean is None


@pytest.mark.parametrize("preset", ["iaia-bl", "protopnet"])
def test_every_preset_with_one_level_is_evaluated(preset: str, new_run) -> None:
    result = evaluate_run(new_run(preset=preset), **QUICK)
    assert list(result.activation_precision.lesion.per_level) == ["5"]
    assert result.activation_precision.lesion.mean is not None


def changed(manifest: Path, out: Path, change) -> Path:
    """A manifest beside the first with changed test rows."""
    rows = list(csv.DictReader(manifest.open(newline="")))
    kept = [row for row in map(change, rows) if row is not None]
    path = manifest.parent / out
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(kept)
    return path


def test_without_masks_fine_is_null_and_lesion_is_not(new_run, phantom_manifest) -> None:
    boxes_only = changed(phantom_manifest, Path("boxes.csv"), lambda row: {**row, "mask": ""})
    result = evaluate_run(new_run(), boxes_only, **QUICK)
    assert result.activation_precision.fine.mean is None
    assert result.activation_precision.fine.chance is None
    assert result.activation_precision.lesion.mean > 0


def test_a_split_of_one_class_gives_nulls_and_warnings_not_a_crash(
    new_run, phantom_manifest
) -> None:
    def spiculated(row: dict[str, str]) -> dict[str, str] | None:
        return row if row["split"] != "test" or row["label"] == "spiculated" else None

    with pytest.warns(UserWarning, match="no row of class indistinct"):
        result = evaluate_run(
            new_run(), changed(phantom_manifest, Path("one.csv"), spiculated), **QUICK
        )
    assert result.auroc.mean is None and result.auroc.ci95 is None
    assert result.sensitivity["indistinct"] is None
    assert len([line for line in result.warnings if "no row of class" in line]) == 3


def test_a_split_of_one_image_is_evaluated(new_run, phantom_manifest) -> None:
    first = read_manifest(phantom_manifest).split("test")[0].name

    def one(row: dict[str, str]) -> dict[str, str] | None:
        return row if row["split"] != "test" or row["image"] == first else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = evaluate_run(
            new_run(), changed(phantom_manifest, Path("single.csv"), one), **QUICK
        )
    assert result.n == 1 and result.auroc.mean is None


def test_a_forced_evaluation_is_marked(new_run) -> None:
    run = new_run()
    assert evaluate_run(run, split="train", force=True, **QUICK).leaked is True
    assert run.folder.read_json("evaluation/train.json")["leaked"] is True


def test_views_of_a_patient_are_averaged(new_run, phantom_manifest) -> None:
    """All test rows of a class become one patient's views."""

    def one_patient(row: dict[str, str]) -> dict[str, str]:
        number = int(row["patient_id"].removeprefix("patient")) % 2
        return row if row["split"] != "test" else {**row, "patient_id": f"views{number}"}

    run = new_run()
    result = evaluate_run(run, changed(phantom_manifest, Path("views.csv"), one_patient), **QUICK)
    rows = list(csv.DictReader((run.folder / "evaluation/test.csv").open(newline="")))
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["label"] != "negative":
            key = (row["patient"], row["label"])
            groups.setdefault(key, []).append(float(row["probability_spiculated"]))
    means = {key: np.mean(values) for key, values in groups.items()}
    expected = roc_auc_score([key[1] == "spiculated" for key in means], list(means.values()))
    found = result.per_patient
    assert found.auroc.per_class["spiculated"] == pytest.approx(expected)
    assert found.n == len({(row["patient"], row["label"]) for row in rows})
    assert result.patients == 2


def test_health_finds_planted_problems(new_run) -> None:
    run = new_run()
    layer, head = run.model.prototypes, run.model.head
    with torch.no_grad():
        layer.vectors[1] = 3 * layer.vectors[0]
        head.weight[0, 2] = -1.0
        head.weight[3, 5] = 9.0
        head.weight[:, 7] = 0.0
    logits, scores = torch.rand(6, 4), torch.rand(6, 40) + 0.1
    health = run_health(run, logits, scores)
    assert health.duplicates == ((0, 1),)
    assert health.own_weight_not_positive == (2, 7)
    assert {2, 5} <= set(health.stronger_for_another_class)
    contributions = (head.weight[logits.argmax(1)] * scores).detach()
    used = {int(j) for row in contributions for j in row.abs().argsort(descending=True)[:5]}
    for image in scores.double():  # and those that decide
        sums = head.weight.detach().double() * image
        whole = int(sums.sum(1).argmax())
        used |= {j for j in range(40) if int((sums.sum(1) - sums[:, j]).argmax()) != whole}
    assert health.unused == tuple(j for j in range(40) if j not in used)


def test_duplicates_of_distances_are_near_not_parallel(new_run) -> None:
    layer = new_run(preset="protopnet").model.prototypes
    with torch.no_grad():
        layer.vectors.uniform_(0.49, 0.51)  # as after a sigmoid: all nearly parallel
        layer.vectors[1] = layer.vectors[0]
    found = duplicate_pairs(layer.vectors, layer.classes, layer.levels, "log-l2")
    assert found == [(0, 1)]


def test_prototypes_are_judged_by_their_peak_on_their_source(new_run, phantom_manifest) -> None:
    run = new_run()
    found = source_pointing(run)
    samples = {each.name: each for each in read_manifest(phantom_manifest).samples}
    levels = run.model.prototypes.levels.tolist()
    inside: dict[str, list[float]] = {}
    for record in run.prototypes:
        evidence, prepared = alone(run, samples[record.image])
        if prepared.mask is None or not prepared.mask.any():
            continue
        place = record.index - levels.index(record.level)
        activation = activation_maps(evidence.maps[record.level][:, [place]], 64, 64)[0, 0]
        top = activation >= activation.max() - 1e-5
        share = float(prepared.mask[top].float().mean())
        inside.setdefault(record.class_name, []).append(share)
    assert {name: found.per_class[name] for name in inside} == pytest.approx(
        {name: np.mean(values) for name, values in inside.items()}, abs=0.02
    )
    assert found.prototypes == 36 and found.per_class["negative"] is None


def test_sources_are_found_in_the_manifest_given_when_that_of_training_is_gone(
    new_run, phantom_manifest
) -> None:
    run = new_run()
    expected = source_pointing(run)
    content = run.folder.read_json("data.json")
    run.folder.write_json("data.json", {**content, "manifest_path": "gone.csv"})
    run = load_run(run.folder.path)
    assert source_pointing(run).mean is None
    assert source_pointing(run, read_manifest(phantom_manifest)) == expected


def test_sources_that_changed_are_not_judged(new_run) -> None:
    run = new_run()
    content = run.folder.read_json("data.json")
    content["splits"]["train"] = dict.fromkeys(content["splits"]["train"], "another hash")
    run.folder.write_json("data.json", content)
    assert source_pointing(run).mean is None


def test_metrics_below_chance_are_warned_of_and_kept(new_run) -> None:
    """Each metric, at each scale, exactly where its own figures say so."""
    run = new_run()
    with pytest.warns(UserWarning) as caught:
        result = evaluate_run(run, **QUICK)
    assert {str(each.message) for each in caught} >= set(result.warnings)
    text = (run.folder / "evaluation/test.json").read_text()
    assert json.loads(text)["warnings"] == list(result.warnings)
    for name, scales in (
        ("activation precision", result.activation_precision),
        ("the pointing game", result.pointing_game),
    ):
        lines = [line for line in result.warnings if f": {name} is below chance" in line]
        scale = {"annotation": scales.fine, "lesion box": scales.lesion}
        below = [where for where, each in scale.items() if each.mean < each.chance]
        assert len(lines) == bool(below)
        for where in scale:
            told = bool(lines) and f"inside the {where} (chance" in lines[0]
            assert told == (where in below)


def both_scales(fine: float | None, lesion: float | None, chance: float) -> BothScales:
    def one(mean: float | None) -> PairMeanWithChance:
        return PairMeanWithChance(mean, None, {}, {}, 9, 9, None if mean is None else chance, {})

    return BothScales(one(fine), one(lesion))


@pytest.mark.parametrize(
    ("precision", "pointing", "expected"),
    [
        ((0.5, 0.6), (0.4, 0.5), []),
        ((None, None), (None, None), []),
        ((0.2, 0.2), (0.2, 0.2), []),  # chance itself
        ((0.1, 0.6), (0.4, 0.5), [("activation precision", ["annotation"])]),
        ((None, 0.1), (0.4, 0.5), [("activation precision", ["lesion box"])]),
        (
            (0.1, 0.1),
            (0.4, 0.1),
            [
                ("activation precision", ["annotation", "lesion box"]),
                ("the pointing game", ["lesion box"]),
            ],
        ),
    ],
)
def test_one_line_for_each_metric_below_chance(precision, pointing, expected) -> None:
    area = PairMean(0.1, None, {}, {}, 9, 9)
    summary = LocalisationSummary(both_scales(*precision, 0.2), both_scales(*pointing, 0.2), area)
    lines = looking_elsewhere(summary, "test")
    assert len(lines) == len(expected)
    for line, (metric, places) in zip(lines, expected, strict=True):
        assert line.startswith(f"split test: {metric} is below chance, ")
        assert "\n" not in line
        for place in ("annotation", "lesion box"):
            assert (f".100 inside the {place} (chance .200)" in line) == (place in places)


def test_sources_at_the_border_are_warned_of(new_run) -> None:
    """Runs that nobody trained have all their sources in the upper left corner."""
    with pytest.warns(UserWarning, match="come from the border of their source image"):
        result = evaluate_run(new_run(), **QUICK)
    assert any("100% of the prototypes come from the border" in line for line in result.warnings)
