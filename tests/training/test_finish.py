"""The end of a training: pictures that lose nothing, boxes, and facts about the data."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.data.images import content_hash, prepare_sample, read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.training import finish
from protopyramid.training.finish import picture_bytes
from protopyramid.utils import files

from ..harness import Reference, tiny


def test_a_grey_picture_keeps_every_level_that_the_store_has(tmp_path: Path) -> None:
    levels = torch.randint(0, 65536, (1, 16, 16), generator=torch.Generator().manual_seed(0))
    path = tmp_path / "a.png"
    path.write_bytes(picture_bytes(levels.float() / 65535))
    assert torch.equal(torch.from_numpy(read_image(path) * 65535).round().long(), levels[0])


def test_a_colour_picture_is_rgb() -> None:
    image = torch.zeros(3, 4, 4)
    image[0] = 1.0
    picture = Image.open(io.BytesIO(picture_bytes(image)))
    assert picture.mode == "RGB"
    assert picture.getpixel((0, 0)) == (255, 0, 0)


def test_pictures_are_the_sources_at_input_size(reference: Reference) -> None:
    run = load_run(reference.folder)
    samples = {sample.name: sample for sample in read_manifest(reference.manifest).samples}
    for record in run.prototypes:
        picture = read_image(reference.folder / f"prototypes/{record.index:03d}.png")
        source = prepare_sample(samples[record.image], run.config.data).image[0].numpy()
        np.testing.assert_allclose(picture, source, atol=1 / 65535)
    assert len(list((reference.folder / "prototypes").iterdir())) == len(run.prototypes)


def test_a_box_is_around_the_strongest_twentieth_of_the_activation(reference: Reference) -> None:
    run = load_run(reference.folder)
    model = run.model
    assert model.prototypes is not None
    from protopyramid.data.images import normalise

    for record in run.prototypes:
        picture = torch.from_numpy(
            read_image(reference.folder / f"prototypes/{record.index:03d}.png")
        )
        with torch.no_grad():
            maps = model(normalise(picture[None, None], run.config.data)).maps[record.level]
        column = record.index - model.prototypes.slices[record.level].start
        size = run.config.data.image_size
        activation = torch.nn.functional.interpolate(
            maps[:, column : column + 1], (size, size), mode="bilinear", align_corners=False
        )[0, 0]
        kept = activation >= np.quantile(activation.numpy(), 0.95)
        rows, cols = kept.any(1).nonzero(), kept.any(0).nonzero()
        expected = (
            int(cols.min()) / size,
            int(rows.min()) / size,
            (int(cols.max()) + 1) / size,
            (int(rows.max()) + 1) / size,
        )
        assert record.box == pytest.approx(expected, abs=1.5 / size)


def test_the_facts_name_every_training_image_with_its_digest(reference: Reference) -> None:
    facts = json.loads((reference.folder / "data.json").read_text())
    manifest = read_manifest(reference.manifest)
    assert facts["classes"] == tiny().data.classes
    assert facts["manifest"] == "manifest.csv"
    assert facts["backbone"] == "random"
    assert (reference.folder / facts["manifest_path"]).resolve() == reference.manifest.resolve()
    assert set(facts["splits"]) == {"train", "validation"}
    for split, digests in facts["splits"].items():
        assert digests == {
            sample.name: content_hash(read_image(sample.image)) for sample in manifest.split(split)
        }
    assert facts["counts"]["test"] == dict.fromkeys(tiny().data.classes, 2)


def test_the_model_is_the_last_file_to_be_written(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its presence says that the run is finished."""
    written = []
    original = files.write_bytes
    monkeypatch.setattr(
        files,
        "write_bytes",
        lambda path, content: written.append(path.name) or original(path, content),
    )
    run = load_run(reference.folder)
    samples = read_manifest(reference.manifest).split("train")
    from protopyramid.data.store import ImageStore

    store = ImageStore(samples, run.config.data)
    records = [record.to_json() for record in run.prototypes]
    finish.finish_run(RunFolder(tmp_path), run.config, run.model, store, records)
    assert written[-2:] == ["prototypes.json", "model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == reference.model
    assert json.loads((tmp_path / "prototypes.json").read_text()) == records


def test_a_record_has_the_label_of_its_source_image_whatever_its_class(
    reference: Reference,
) -> None:
    run = load_run(reference.folder)
    labels = {sample.name: sample.label for sample in read_manifest(reference.manifest).samples}
    assert all(record.label == labels[record.image] for record in run.prototypes)
    samples = read_manifest(reference.manifest).split("train")
    other = next(each for each in samples if each.label != run.prototypes[0].class_name)
    entry = {**run.prototypes[0].to_json(), "image": other.name}
    store = ImageStore(samples, run.config.data)
    (found,) = finish.prototype_records(run.model, store, [entry], 8)
    assert found.label == other.label == found.other_label
