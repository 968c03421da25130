"""The trainer from end to end: what learns, what stays, and what a finished run says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import protopyramid as pp
from protopyramid.data.images import normalise, prepare_sample, read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run, load_run
from protopyramid.training.engine import train_run

from ..harness import Reference, copy_manifest, tiny

FINISH = [{"step": "project"}, {"step": "fit-head"}]


def pyramid_vector(run: Run, image: Tensor, level: int, row: int, col: int) -> Tensor:
    """z of one image (C, S, S) at one cell, from the run's model alone."""
    with torch.no_grad():
        z = run.model.pyramid(normalise(image[None], run.config.data))
    return z[level][0, :, row, col]


def agree(vector: Tensor, patch: Tensor) -> None:
    error = float((vector - patch).norm() / patch.norm())
    cosine = float(torch.cosine_similarity(vector.double(), patch.double(), dim=0))
    assert error <= 1e-5, error
    assert cosine >= 1 - 1e-6


def nearest_patches_agree(folder: Path, manifest: Path) -> None:
    """Every prototype is the pyramid's vector at its recorded place, by manifest and by picture."""
    run = load_run(folder)
    samples = {sample.name: sample for sample in read_manifest(manifest).samples}
    assert run.model.prototypes is not None
    vectors = run.model.prototypes.vectors.detach()
    assert len(run.prototypes) == len(vectors) > 0
    for record in run.prototypes:
        sample = samples[record.image]
        assert (sample.split, sample.label) == ("train", record.class_name)
        place = (record.level, record.row, record.col)
        image = prepare_sample(sample, run.config.data).image
        agree(vectors[record.index], pyramid_vector(run, image, *place))
        picture = read_image(folder / f"prototypes/{record.index:03d}.png")
        assert picture.shape == (run.config.data.image_size,) * 2
        agree(vectors[record.index], pyramid_vector(run, torch.from_numpy(picture)[None], *place))


def test_every_prototype_is_a_patch_of_a_training_image(reference: Reference) -> None:
    nearest_patches_agree(reference.folder, reference.manifest)


def test_no_two_prototypes_of_a_class_and_level_share_an_image(reference: Reference) -> None:
    records = load_run(reference.folder).prototypes
    sources = [(record.class_name, record.level, record.image) for record in records]
    assert len(set(sources)) == len(sources)
    assert [record.index for record in records] == list(range(len(records)))


def test_boxes_are_where_the_prototype_activates(reference: Reference) -> None:
    """By cosines written out: the peak is the prototype's own cell, and it lies in the box."""
    run = load_run(reference.folder)
    assert run.model.prototypes is not None
    size = run.config.data.image_size
    for record in run.prototypes:
        picture = read_image(reference.folder / f"prototypes/{record.index:03d}.png")
        with torch.no_grad():
            image = normalise(torch.from_numpy(picture)[None, None], run.config.data)
            z = run.model.pyramid(image)[record.level][0].double().numpy()
        p = run.model.prototypes.vectors[record.index].detach().double().numpy()
        cosine = np.einsum("dhw,d->hw", z, p) / np.linalg.norm(z, axis=0) / np.linalg.norm(p)
        height, width = cosine.shape
        assert np.unravel_index(cosine.argmax(), cosine.shape) == (record.row, record.col)
        x0, y0, x1, y1 = record.box
        pixel = 1 / size
        assert x0 - pixel <= (record.col + 0.5) / width <= x1 + pixel
        assert y0 - pixel <= (record.row + 0.5) / height <= y1 + pixel
        columns, rows = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
        inside = np.outer(
            (rows >= y0 - pixel) & (rows <= y1 + pixel),
            (columns >= x0 - pixel) & (columns <= x1 + pixel),
        )
        if not inside.all():
            assert cosine[inside].mean() > cosine[~inside].mean()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    reference: Reference, tmp_path: Path
) -> None:
    """In this process, beside the reference's own."""
    same = train_run(tiny(), reference.manifest, tmp_path / "same")
    assert (same / "model.safetensors").read_bytes() == reference.model
    other = train_run(tiny(train__seed=1), reference.manifest, tmp_path / "other")
    assert (other / "model.safetensors").read_bytes() != reference.model


def test_in_bf16_a_model_learns_and_its_prototypes_are_exact_patches(
    reference: Reference, tmp_path: Path
) -> None:
    """Only optimiser steps are in bf16; projection, head fit and what is saved are not."""
    config = tiny(train__precision="bf16-mixed")
    run = train_run(config, reference.manifest, tmp_path / "run")
    nearest_patches_agree(run, reference.manifest)
    tensors = load_file(run / "model.safetensors")
    assert {each.dtype for each in tensors.values() if each.is_floating_point()} == {torch.float32}
    assert (run / "model.safetensors").read_bytes() != reference.model
    found, expected = (
        [line["losses"] for line in RunFolder(each).read_lines("metrics.jsonl") if "losses" in line]
        for each in (run, reference.folder)
    )
    for losses, wanted in zip(found, expected, strict=True):
        assert losses["cross_entropy"] == pytest.approx(wanted["cross_entropy"], rel=0.1)


# -- what is ours --------------------------------------------------------------------------------
def test_a_run_with_everything_that_is_ours_trains_and_its_prototypes_are_patches(
    phantoms: Path, tmp_path: Path
) -> None:
    options = {
        "model__backbone__padding": "replicate",
        "model__neck__padding": "replicate",
        "model__neck__batch_norm": True,
        "loss__contrast": 2.0,
        "loss__contrast_margin": 0.3,
        "loss__fine__share": True,
        "loss__cluster_over": "mean",
    }
    out = train_run(tiny(**options), phantoms, tmp_path / "run")
    nearest_patches_agree(out, phantoms)
    epochs = [line for line in RunFolder(out).read_lines("metrics.jsonl") if "losses" in line]
    assert epochs and all(np.isfinite(line["losses"]["contrast"]) for line in epochs)


# -- the model that is kept ----------------------------------------------------------------------
def test_the_saved_model_is_the_best_candidate_on_validation(reference: Reference) -> None:
    lines = RunFolder(reference.folder).read_lines("metrics.jsonl")
    fits = [line for line in lines if line["kind"] == "fit-head"]
    keys = [(f["validation"]["auroc"], -f["validation"]["cross_entropy"]) for f in fits]
    best = max(range(len(fits)), key=lambda number: keys[number])
    assert [fit["best"] for fit in fits] == [
        key > max(keys[:number], default=(-1.0, 0.0)) for number, key in enumerate(keys)
    ]
    run = load_run(reference.folder)
    samples = read_manifest(reference.manifest).split("validation")
    images = torch.stack([prepare_sample(sample, run.config.data).image for sample in samples])
    with torch.no_grad():
        logits = run.model(normalise(images, run.config.data)).logits
    labels = torch.tensor([run.config.data.classes.index(sample.label) for sample in samples])
    loss = float(torch.nn.functional.cross_entropy(logits.double(), labels))
    assert loss == pytest.approx(fits[best]["validation"]["cross_entropy"], abs=1e-4)
    accuracy = float((logits.argmax(1) == labels).double().mean())
    assert accuracy == pytest.approx(fits[best]["validation"]["accuracy"])


# -- every system --------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"])
def test_every_preset_trains_to_the_end(preset: str, phantoms: Path, tmp_path: Path) -> None:
    from protopyramid.config import load_config

    from ..harness import TINY

    config = load_config(preset, {**TINY, "train.scale": 0.01, "train.batch_size": 12})
    if preset == "iaia-bl":  # 13 rounds of its 13 joint phases take a minute; two show as much
        schedule = [step.model_dump() for step in config.train.schedule]
        schedule[-1]["times"] = 2
        config = load_config(preset, {**TINY, "train.scale": 0.01, "train.schedule": schedule})
    run = load_run(train_run(config, phantoms, tmp_path / "run"))
    records = json.loads((tmp_path / "run/prototypes.json").read_text())
    if preset == "vgg16":
        assert records == []
        assert run.model.prototypes is None
        assert not (tmp_path / "run/prototypes").exists()
        return
    nearest_patches_agree(tmp_path / "run", phantoms)


def test_the_black_box_with_hidden_layers_trains_and_is_used(
    phantoms: Path, tmp_path: Path
) -> None:
    """Validation, limits, evaluation, prediction and explanation work on a head that is not linear."""
    config = tiny(
        "vgg16",
        model__backbone__last_pool=True,
        model__pooling__kind="flatten",
        model__head__hidden=[16, 16],
        model__head__dropout=0.5,
        train__schedule=[{"step": "train", "learns": ["backbone.5", "head"], "epochs": 2}],
    )
    run = pp.train(config, phantoms, tmp_path / "run")
    best = [
        line for line in RunFolder(tmp_path / "run").read_lines("metrics.jsonl") if line["best"]
    ]
    samples = read_manifest(phantoms).split("validation")
    said = run.predict([sample.image for sample in samples])
    right = [one["predicted"] == sample.label for one, sample in zip(said, samples, strict=True)]
    assert np.mean(right) == pytest.approx(best[-1]["validation"]["accuracy"])
    assert all(isinstance(one["unlike_training"], bool) for one in said)
    explanation = run.explain(samples[0].image)
    assert explanation.to_json()["prototypes"] == []
    assert "contribution" in explanation.to_json()["note"]
    assert explanation.save(tmp_path / "why.png").stat().st_size > 10_000
    assert pp.evaluate(run, split="validation", bootstrap=5)


def test_other_class_names_work(phantoms: Path, tmp_path: Path) -> None:
    names = {
        "circumscribed": "benign",
        "indistinct": "",
        "spiculated": "malignant",
        "negative": "normal",
    }

    def rename(row: str) -> str:
        image, label, rest = row.split(",", 2)
        return f"{image},{names[label]},{rest}" if names[label] else ""

    manifest = copy_manifest(phantoms, tmp_path / "data", rename)
    config = tiny(
        data__classes=["benign", "malignant", "normal"],
        data__negative_class="normal",
        loss__fine__inside={},
        loss__fine__outside={},
    )
    run = load_run(train_run(config, manifest, tmp_path / "run"))
    assert {record.class_name for record in run.prototypes} == {"benign", "malignant", "normal"}
    facts = json.loads((tmp_path / "run/data.json").read_text())
    assert facts["counts"]["train"] == {"benign": 6, "malignant": 6, "normal": 6}


def test_a_model_without_a_negative_class_works(phantoms: Path, tmp_path: Path) -> None:
    manifest = copy_manifest(
        phantoms, tmp_path / "data", lambda row: "" if ",negative," in row else row
    )
    config = tiny(
        data__classes=["circumscribed", "indistinct", "spiculated"], data__negative_class=""
    )
    assert len(load_run(train_run(config, manifest, tmp_path / "run")).prototypes) == 9


# -- the data that may be seen -------------------------------------------------------------------
def test_test_images_are_never_read(reference: Reference, tmp_path: Path) -> None:
    """Files of the test split that cannot be decoded do not matter, nor do their labels' numbers."""
    manifest = copy_manifest(reference.manifest, tmp_path / "data", lambda row: row)
    for sample in read_manifest(manifest).split("test"):
        sample.image.write_bytes(b"not an image")
    out = train_run(tiny(), manifest, tmp_path / "run")
    assert (out / "model.safetensors").read_bytes() == reference.model


def test_without_validation_rows_a_part_of_train_is_held_out(
    phantoms: Path, tmp_path: Path
) -> None:
    manifest = copy_manifest(
        phantoms, tmp_path / "data", lambda row: row.replace(",validation,", ",train,")
    )
    train_run(tiny(train__schedule=FINISH), manifest, tmp_path / "run")
    facts = json.loads((tmp_path / "run/data.json").read_text())
    train, validation = (set(facts["splits"][name]) for name in ("train", "validation"))
    assert train and validation and not train & validation
    assert train | validation == {sample.name for sample in read_manifest(manifest).split("train")}
    patients = [{name.split("-")[0] for name in part} for part in (train, validation)]
    assert not patients[0] & patients[1]
    records = json.loads((tmp_path / "run/prototypes.json").read_text())
    assert {record["image"] for record in records} <= train


# -- what goes wrong -----------------------------------------------------------------------------
def test_a_training_image_that_cannot_be_read_is_named_before_any_training(
    reference: Reference, tmp_path: Path
) -> None:
    manifest = copy_manifest(reference.manifest, tmp_path / "data", lambda row: row)
    broken = read_manifest(manifest).split("train")[3].image
    broken.write_bytes(b"not an image")
    with pytest.raises(UserError, match=broken.name):
        train_run(tiny(), manifest, tmp_path / "run")
    assert not (tmp_path / "run/checkpoint").exists()
    # Once repaired, the same command starts: there is nothing to continue from.
    good = Path(str(broken).replace(str(manifest.parent), str(reference.manifest.parent)))
    broken.write_bytes(good.read_bytes())
    out = train_run(tiny(), manifest, tmp_path / "run")
    assert (out / "model.safetensors").read_bytes() == reference.model
