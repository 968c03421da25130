"""The trainer from end to end: what learns, what stays, and what a finished run says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from protopyramid.config.schema import Config
from protopyramid.data.images import normalise, prepare_sample, read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.model import build_model
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run, load_run
from protopyramid.training.engine import train_run
from protopyramid.training.trainer import Trainer

from ..harness import Command, Reference, copy_manifest, tiny

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
    for record in load_run(reference.folder).prototypes:
        x0, y0, x1, y1 = record.box
        assert 0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1


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
    """Only the steps of training are in bf16; projection, head fit and what is saved are not."""
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


# -- what learns ---------------------------------------------------------------------------------
def owner(name: str, config: Config) -> str:
    """The part that a tensor of the model belongs to."""
    part, _, rest = name.partition(".")
    if part != "backbone":
        return part
    backbone = build_model(config).backbone
    layer = int(rest.split(".")[1])
    ends = np.cumsum([len(backbone.block(number)) for number in range(1, 6)])
    return f"backbone.{int(np.searchsorted(ends, layer, side='right')) + 1}"


def states_around(
    monkeypatch: pytest.MonkeyPatch, config: Config, manifest: Path, out: Path
) -> list[tuple[str, dict[str, Tensor], dict[str, Tensor]]]:
    """The model before and after each stage of a training, with the stage's name."""
    seen = []
    original = Trainer._stage

    def copy(model: torch.nn.Module) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def watched(self: Trainer, stage: Any, restored: Any) -> None:
        before = copy(self.model)
        original(self, stage, restored)
        seen.append((stage.name, before, copy(self.model)))

    monkeypatch.setattr(Trainer, "_stage", watched)
    train_run(config, manifest, out)
    return seen


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(
    "learns",
    [
        ["neck"],
        ["prototypes"],
        ["head"],
        ["backbone.5"],
        ["backbone.4", "backbone.5", "head"],
        ["backbone"],
    ],
    ids="+".join,
)
@pytest.mark.parametrize("views", [0, 1])
def test_what_a_step_does_not_name_stays_bit_identical(
    monkeypatch: pytest.MonkeyPatch,
    phantoms: Path,
    tmp_path: Path,
    learns: list[str],
    views: int,
) -> None:
    step = {"step": "train", "name": "only", "learns": learns, "epochs": 1, "views": views}
    config = tiny(train__schedule=[step, *FINISH])
    stages = states_around(monkeypatch, config, phantoms, tmp_path / "run")
    (_, before, after), (_, *projected), (_, *fitted) = stages
    parts = {owner(name, config) for name in changed(before, after)}
    named = {f"backbone.{n}" for n in range(1, 6)} if learns == ["backbone"] else set(learns)
    assert parts == named
    buffers = {name for name in changed(before, after) if "running" in name}
    assert bool(buffers) == any(part.startswith("backbone") for part in learns)
    # Prototypes begin as patches: projection moves nothing where they and their patches stayed.
    assert changed(*projected) == (set() if learns == ["head"] else {"prototypes.vectors"})
    assert changed(*fitted) == {"head.weight"}


@pytest.mark.parametrize("learns", [["head"], ["backbone.5"], ["neck"]], ids="+".join)
def test_a_frozen_pyramid_keeps_the_statistics_of_its_batch_norm(
    monkeypatch: pytest.MonkeyPatch, phantoms: Path, tmp_path: Path, learns: list[str]
) -> None:
    step = {"step": "train", "name": "only", "learns": learns, "epochs": 1}
    config = tiny(train__schedule=[step, *FINISH], model__neck__batch_norm=True)
    (_, before, after), *_ = states_around(monkeypatch, config, phantoms, tmp_path / "run")
    moved = {name for name in changed(before, after) if name.startswith("neck.norm.")}
    assert bool(moved) == (learns == ["neck"])


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


@pytest.mark.parametrize(
    ("every", "measured"), [(1, [1, 2, 3, 4, 5]), (2, [2, 3, 4, 5]), (9, [3, 5])]
)
def test_validation_is_measured_every_few_epochs_and_at_the_end_of_each_step(
    phantoms: Path, tmp_path: Path, every: int, measured: list[int]
) -> None:
    step = {"step": "train", "learns": ["head"], "views": 1}
    schedule = [
        {**step, "name": "first", "epochs": 3},
        {**step, "name": "second", "epochs": 2},
        *FINISH,
    ]
    config = tiny(train__schedule=schedule, train__validate_every=every)
    out = train_run(config, phantoms, tmp_path / "run")
    lines = RunFolder(out).read_lines("metrics.jsonl")
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [line["epoch"] for line in epochs] == [1, 2, 3, 4, 5]
    assert [line["epoch"] for line in epochs if line["validation"]] == measured
    # What is kept is chosen after projection and head fit, which are always measured.
    assert all(line["validation"] for line in lines if line["kind"] != "epoch")


def test_without_prototypes_every_epoch_is_measured_since_each_may_be_the_best(
    phantoms: Path, tmp_path: Path
) -> None:
    schedule = [{"step": "train", "name": "all", "learns": ["backbone", "head"], "epochs": 3}]
    config = tiny("vgg16", train__schedule=schedule, train__validate_every=5)
    out = train_run(config, phantoms, tmp_path / "run")
    epochs = RunFolder(out).read_lines("metrics.jsonl")
    assert [bool(line["validation"]) for line in epochs] == [True] * 3
    assert any(line["best"] for line in epochs)


def test_the_head_of_a_black_box_may_be_fitted_and_is_a_candidate_then(
    phantoms: Path, tmp_path: Path
) -> None:
    schedule = [
        {"step": "train", "name": "all", "learns": ["backbone", "head"], "epochs": 1},
        {"step": "fit-head"},
    ]
    config = tiny("vgg16", train__schedule=schedule)
    out = train_run(config, phantoms, tmp_path / "run")
    epoch, fit = RunFolder(out).read_lines("metrics.jsonl")
    assert fit["candidate"] and fit["optimality"] <= config.head_fit.tolerance
    better = fit["validation"]["auroc"] > epoch["validation"]["auroc"]
    assert not better or fit["best"]
    again = train_run(config, phantoms, tmp_path / "run", resume=True)
    assert len(RunFolder(again).read_lines("metrics.jsonl")) == 2


def test_a_head_may_be_fitted_on_the_backbone_of_another_run(
    phantoms: Path, tmp_path: Path
) -> None:
    """Trained and fitted, or fitted on what was trained: the same head."""
    train = {"step": "train", "name": "all", "learns": ["backbone", "head"], "epochs": 1}
    fit = {"step": "fit-head"}
    runs = {}
    for name, schedule in {"trained": [train], "both": [train, fit], "fitted": [fit]}.items():
        config = tiny("vgg16", train__schedule=schedule)
        start = runs["trained"] if name == "fitted" else None
        runs[name] = train_run(config, phantoms, tmp_path / name, backbone_from=start)
    figures = [RunFolder(runs[name]).read_lines("metrics.jsonl")[-1] for name in ("both", "fitted")]
    assert figures[0]["validation"] == figures[1]["validation"]
    assert figures[0]["objective"] == figures[1]["objective"]
    model = load_run(runs["fitted"]).model
    trained = load_run(runs["trained"]).model
    for ours, theirs in zip(
        model.backbone.parameters(), trained.backbone.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


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


def test_the_head_is_at_the_optimum_of_its_problem(reference: Reference) -> None:
    lines = RunFolder(reference.folder).read_lines("metrics.jsonl")
    for line in lines:
        if line["kind"] == "fit-head":
            assert line["optimality"] <= load_run(reference.folder).config.head_fit.tolerance


def test_a_projection_reports_moves_second_choices_and_accuracy(reference: Reference) -> None:
    count = len(load_run(reference.folder).prototypes)
    for line in RunFolder(reference.folder).read_lines("metrics.jsonl"):
        if line["kind"] == "project":
            assert len(line["moved"]) == count
            assert -1 <= line["nearest_similarity"]["worst"] <= line["nearest_similarity"]["mean"]
            assert {"accuracy", "auroc", "cross_entropy"} <= set(line["before"])
            assert set(line["second_choices"]) <= set(range(count))


# -- every system --------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"])
def test_every_preset_trains_to_the_end(preset: str, phantoms: Path, tmp_path: Path) -> None:
    from protopyramid.config import load_config

    from ..harness import TINY

    config = load_config(preset, {**TINY, "train.scale": 0.01, "train.batch_size": 12})
    if preset == "iaia-bl":  # 13 rounds of its 13 joint stages are a minute; two show as much
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
def test_a_loss_that_is_not_finite_names_its_images_and_keeps_the_checkpoint(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = command(
        *reference.arguments(out),
        *(
            "--set",
            "train.schedule=[{step='train', learning_rate=1e30}, {step='project'}, {step='fit-head'}]",
        ),
    )
    assert done.code == 2, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert "the loss is not finite" in error
    assert "images/patient" in error
    names = {sample.name for sample in read_manifest(reference.manifest).split("train")}
    told = [word.strip(",;") for word in error.split() if word.startswith("images/")]
    assert told and set(told) <= names
    assert len(list((out / "checkpoint").glob("0*.safetensors"))) >= 1
    for path in (out / "checkpoint").glob("0*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values())


def test_a_training_image_that_cannot_be_read_is_named_before_any_training(
    reference: Reference, tmp_path: Path
) -> None:
    manifest = copy_manifest(reference.manifest, tmp_path / "data", lambda row: row)
    broken = read_manifest(manifest).split("train")[3].image
    broken.write_bytes(b"not an image")
    with pytest.raises(UserError, match=broken.name):
        train_run(tiny(), manifest, tmp_path / "run")
    assert not (tmp_path / "run/checkpoint").exists()
    # Once mended, the same command begins: there is nothing to go on from.
    good = Path(str(broken).replace(str(manifest.parent), str(reference.manifest.parent)))
    broken.write_bytes(good.read_bytes())
    out = train_run(tiny(), manifest, tmp_path / "run")
    assert (out / "model.safetensors").read_bytes() == reference.model


# -- starting from another run -------------------------------------------------------------------
def test_the_backbone_of_another_run_is_taken_whole(reference: Reference, tmp_path: Path) -> None:
    config = tiny(
        "iaia-bl",
        model__neck__dim=8,
        train__schedule=[
            {"step": "train", "learns": ["neck", "prototypes"], "epochs": 1},
            *FINISH,
        ],
    )
    out = train_run(config, reference.manifest, tmp_path / "run", backbone_from=reference.folder)
    mine, theirs = (load_file(run / "model.safetensors") for run in (out, reference.folder))
    names = [name for name in theirs if name.startswith("backbone.")]
    assert names and all(torch.equal(mine[name], theirs[name]) for name in names)
    facts = json.loads((out / "data.json").read_text())
    assert facts["backbone"] == "run run"


def test_a_backbone_of_another_width_is_refused(reference: Reference, tmp_path: Path) -> None:
    config = tiny(model__backbone__width=0.125)
    with pytest.raises(UserError, match="its backbone does not fit this one"):
        train_run(config, reference.manifest, tmp_path / "run", backbone_from=reference.folder)


def test_nothing_to_learn_is_a_mistake_of_the_user(phantoms: Path, tmp_path: Path) -> None:
    config = tiny(
        "vgg16", train__schedule=[{"step": "train", "learns": ["prototypes"], "epochs": 1}]
    )
    with pytest.raises(UserError, match="nothing of"):
        train_run(config, phantoms, tmp_path / "run")


# -- TensorBoard ---------------------------------------------------------------------------------
def test_scalars_are_written_for_tensorboard(reference: Reference) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(reference.folder / "tensorboard"))
    events.Reload()
    scalars = set(events.Tags()["scalars"])
    assert {"losses/cross_entropy", "validation/auroc", "nearest_similarity/mean"} <= scalars
    assert len(events.Tags()["images"]) == len(load_run(reference.folder).prototypes)
