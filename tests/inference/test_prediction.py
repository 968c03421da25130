"""Predictions name their reasons, for any table of images."""

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
from protopyramid.errors import UserError
from protopyramid.inference.prediction import (
    expand_folders,
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
    header, first, *_ = csv.reader(io.StringIO(predictions_csv(records, run.config.data.classes)))
    assert len(header) == len(first)


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


def test_a_table_needs_neither_labels_nor_splits(new_run, phantom_manifest, tmp_path: Path) -> None:
    run = new_run()
    samples = read_manifest(phantom_manifest).split("test")[:4]
    table = tmp_path / "images.csv"
    expected = run.predict([sample.image for sample in samples])

    def written(header: str, rows: list[str]) -> list[dict]:
        names = [sample.image.as_posix() for sample in samples]
        lines = [header, *(row.replace("IMAGE", n) for row, n in zip(rows, names, strict=True))]
        table.write_text("\n".join(lines))
        return predict_manifest(run, table)

    bare = written("image", ["IMAGE"] * 4)
    assert [each["predicted"] for each in bare] == [each["predicted"] for each in expected]
    assert [each["label"] for each in bare] == [""] * 4
    others = ["IMAGE,benign,", "IMAGE,,external", "IMAGE,,", "IMAGE,spiculated,test"]
    labelled = written("image,label,split", others)
    assert [each["label"] for each in labelled] == ["benign", "", "", "spiculated"]
    assert [each["logits"] for each in labelled] == [each["logits"] for each in bare]
    (only,) = predict_manifest(run, table, "external")
    assert only["image"] == samples[1].image.as_posix()
    with pytest.raises(UserError, match="no row has split train: the splits are external, test"):
        predict_manifest(run, table, "train")
    written("image,mask,lesion_x0", ["IMAGE,gone.png,x"] * 4)  # annotations are not looked at


def test_what_is_wrong_with_a_table_is_said_at_once(new_run, tmp_path: Path) -> None:
    run, table = new_run(), tmp_path / "images.csv"
    table.write_text("image,label\nno.png,a\n,b\nneither.png,c\n")
    with pytest.raises(UserError, match=r"3 problems: row 2, image.*row 3, image.*row 4, image"):
        predict_manifest(run, table)
    for text in ("picture,label\na.png,b\n", "image;label\na.png;b\n", "image,image\na,b\n"):
        table.write_text(text)
        with pytest.raises(UserError, match="needs one column 'image'"):
            predict_manifest(run, table)
    table.write_text("image\n")
    with pytest.raises(UserError, match="no rows"):
        predict_manifest(run, table)


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
    with pytest.raises(UserError, match="nor its subfolders hold an image"):
        expand_folders([tmp_path / "empty"])


def test_subfolders_are_searched_and_other_files_are_not_images(tmp_path: Path) -> None:
    (tmp_path / "patient/left").mkdir(parents=True)
    for name in ("b.png", "patient/left/a.png"):
        Image.new("L", (8, 8)).save(tmp_path / name)
    (tmp_path / "patient/notes.txt").write_text("not an image")
    assert expand_folders([tmp_path]) == [tmp_path / "b.png", tmp_path / "patient/left/a.png"]


def test_folders_stand_for_their_images(phantom_manifest) -> None:
    images = phantom_manifest.parent / "images"
    assert expand_folders([images, phantom_manifest]) == [
        *sorted(images.iterdir()),
        phantom_manifest,
    ]
