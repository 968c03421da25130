"""Predictions name their reasons, and flag what is unlike anything learned."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.data.images import normalise, prepare_sample
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run
from protopyramid.evaluation.nearness import (
    nearness,
    read_thresholds,
    thresholds,
    validation_threshold,
)
from protopyramid.evaluation.prediction import (
    expand_folders,
    predict_files,
    predict_manifest,
    predictions_csv,
)


def test_records_agree_with_the_model(new_run, phantom_manifest) -> None:
    run = new_run()
    samples = read_manifest(phantom_manifest).split("test")[:3]
    records = run.predict([sample.image for sample in samples])
    for sample, record in zip(samples, records, strict=True):
        image = prepare_sample(sample, run.config.data).image
        with torch.no_grad():
            evidence = run.model(normalise(image[None], run.config.data))
        expected = evidence.logits[0].softmax(0).tolist()
        assert list(record["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
        number = int(evidence.logits[0].argmax())
        assert record["predicted"] == run.config.data.classes[number]
        contributions = run.model.head.weight[number].detach() * evidence.scores[0]
        best = contributions.argmax()
        assert record["prototypes"][0]["index"] == best
        assert record["prototypes"][0]["contribution"] == pytest.approx(
            float(contributions[best]), abs=1e-5
        )
        assert record["prototypes"][0]["level"] == run.model.prototypes.levels[best]
        assert record["nearest"]["index"] == evidence.closeness[0].argmax()
        assert record["unlike_training"] is None  # no thresholds in this run
        assert record["image"] == sample.image.as_posix()


def test_a_model_without_prototypes_predicts(new_run, phantom_manifest) -> None:
    run = new_run(preset="vgg16")
    records = predict_manifest(run, phantom_manifest, "test")
    assert records[0]["nearest"] is None and records[0]["prototypes"] == []
    assert validation_threshold(run.model, ImageStore([], run.config.data)) is None
    header, first, *_ = csv.reader(io.StringIO(predictions_csv(records, run.config.data.classes)))
    assert len(header) == len(first)


def test_thresholds_flag_about_one_in_a_hundred_of_validation_and_an_image_unlike_it(
    new_run, phantom_manifest, tmp_path: Path
) -> None:
    run = new_run()
    samples = read_manifest(phantom_manifest).split("validation")
    content = validation_threshold(run.model, ImageStore(samples, run.config.data))
    assert content is not None
    assert content["images"] == len(samples) and list(content["similarity"]) == list("2345")
    evaluate_run(run, split="validation", bootstrap=5, pictures=False)  # writes the same file
    assert run.folder.read_json("thresholds.json")["similarity"] == pytest.approx(
        content["similarity"]
    )
    flags = [
        each["unlike_training"] for each in predict_manifest(run, phantom_manifest, "validation")
    ]
    assert set(flags) == {False, True}
    assert sum(flags) <= 4  # a level flags its least near image at most, of so few
    limits = {level: value + 10 for level, value in content["similarity"].items()}
    run.folder.write_json("thresholds.json", {**content, "similarity": limits})
    assert all(each["unlike_training"] for each in predict_files(run, [samples[0].image]))


def test_nearness_is_per_level_and_thresholds_are_low_quantiles() -> None:
    closeness = torch.tensor([[0.1, 0.9, 0.3], [0.4, 0.2, 0.5]])
    found = nearness(closeness, torch.tensor([2, 2, 5]))
    assert found[2].tolist() == pytest.approx([0.9, 0.4])
    assert found[5].tolist() == pytest.approx([0.3, 0.5])
    values = torch.linspace(0, 1, 101)
    assert thresholds({3: values})["similarity"]["3"] == pytest.approx(0.01)
    assert thresholds({}) is None and thresholds({3: values[:0]}) is None


def test_a_run_without_thresholds_has_none(new_run) -> None:
    assert read_thresholds(new_run().folder) is None


def test_csv_has_a_row_an_image_with_label_and_split_of_the_manifest(
    new_run, phantom_manifest
) -> None:
    run = new_run()
    records = predict_manifest(run, phantom_manifest, "test")
    rows = list(csv.DictReader(io.StringIO(predictions_csv(records, run.config.data.classes))))
    samples = read_manifest(phantom_manifest).split("test")
    assert [row["image"] for row in rows] == [sample.name for sample in samples]
    assert [row["label"] for row in rows] == [sample.label for sample in samples]
    assert all(row["split"] == "test" for row in rows)
    total = sum(float(rows[0][f"probability_{name}"]) for name in run.config.data.classes)
    assert total == pytest.approx(1, abs=1e-4)
    assert rows[0]["prototype_1_class"] == rows[0]["predicted"]


def test_colour_and_grey_images_of_any_size_are_predicted_together(new_run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, shape in (("a.png", (30, 50)), ("b.png", (70, 40, 3))):
        Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(tmp_path / name)
    records = new_run().predict([tmp_path / "a.png", str(tmp_path / "b.png")])
    assert len(records) == 2
    assert new_run().predict([]) == []


def test_missing_files_and_empty_folders_are_named(new_run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.png: no such image file \(and 1 more"):
        new_run().predict(["no.png", "neither.png"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no image"):
        expand_folders([tmp_path / "empty"])


def test_folders_stand_for_their_images(phantom_manifest) -> None:
    images = phantom_manifest.parent / "images"
    assert expand_folders([images, phantom_manifest]) == [
        *sorted(images.iterdir()),
        phantom_manifest,
    ]
