"""The start of a training: a backbone from elsewhere, a centred pyramid, prototypes from patches."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from protopyramid.config import differences, dump_config, load_config
from protopyramid.config.schema import Config
from protopyramid.data.images import normalise
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.model import build_model
from protopyramid.model.necks import Pyramid
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs.folder import RunFolder
from protopyramid.training import start as start_module
from protopyramid.training.distributed import start_fabric
from protopyramid.training.engine import train_run
from protopyramid.training.start import centre_pyramid, warn_of_frozen_random_backbone
from protopyramid.training.trainer import Trainer
from protopyramid.utils.faults import observed_by

from ..harness import PARTS, Job, Reference, Server, tiny, torchrun_environments
from .test_centring import is_centred


def start(phantoms: Path, out: Path, **options: Any) -> Trainer:
    config = tiny(**options)
    fabric = start_fabric(1, config.train.precision, "cpu")
    return Trainer(config, read_manifest(phantoms), RunFolder(out), fabric)


def training_pyramids(model: PrototypeNetwork, phantoms: Path, **options: Any) -> dict[int, Tensor]:
    """z of all training images, by the model alone."""
    config = tiny(**options)
    samples = read_manifest(phantoms).split("train")
    images = ImageStore(samples, config.data).load(range(len(samples))).images
    with torch.no_grad():
        return model.eval().pyramid(normalise(images, config.data))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model__neck__padding": "replicate", "model__backbone__padding": "replicate"},
        {"model__neck__batch_norm": True},
        {"train__channels_last": False, "train__eval_batch_size": 5},
    ],
    ids=str,
)
def test_training_starts_centred_on_the_training_images(
    phantoms: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    trainer = start(phantoms, tmp_path / "run", **options)
    neck = trainer.model.neck
    assert isinstance(neck, Pyramid)
    centre_pyramid(trainer.passes, neck)
    z = training_pyramids(trainer.model, phantoms, **options)
    assert sorted(z) == [2, 3, 4, 5]
    assert all(is_centred(maps) for maps in z.values())


def first_model(run: Path) -> dict[str, Tensor]:
    """The weights of a run whose neck and backbone never learned."""
    tensors = load_file(run / "model.safetensors")
    return {name: x for name, x in tensors.items() if name.startswith(("backbone.", "neck."))}


HEAD_ALONE = [
    {"step": "train", "name": "head", "learns": ["head"], "epochs": 1},
    {"step": "project"},
    {"step": "fit-head"},
]


def test_a_run_starts_centred_or_as_drawn(phantoms: Path, tmp_path: Path) -> None:
    for choice in ("centred", "random"):
        options = {"model__neck__start": choice, "train__schedule": HEAD_ALONE}
        out = train_run(tiny(**options), phantoms, tmp_path / choice)
        model = build_model(tiny(**options))
        model.load_state_dict(load_file(out / "model.safetensors"))
        z = training_pyramids(model, phantoms, **options)
        assert {is_centred(maps) for maps in z.values()} == {choice == "centred"}
    torch.manual_seed(0)
    drawn = build_model(tiny()).state_dict()
    for name, tensor in first_model(tmp_path / "random").items():
        assert torch.equal(tensor, drawn[name]), name


def test_an_add_on_is_left_as_drawn(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("centred")

    monkeypatch.setattr(start_module, "centre_level", never)
    train_run(tiny("iaia-bl", train__schedule=HEAD_ALONE), phantoms, tmp_path / "run")


def test_two_processes_start_as_one(server: Server, phantoms: Path, tmp_path: Path) -> None:
    """Batches are shared as wholes, and their moments add up."""
    toml = tmp_path / "head.toml"
    toml.write_text(dump_config(tiny(train__schedule=HEAD_ALONE)))
    for name, environments in (("one", [{}]), ("two", torchrun_environments(2))):
        arguments = ["train", toml, "--data", phantoms, "--out", tmp_path / name]
        for done in server.run(*[Job(arguments, (), each) for each in environments]):
            assert done.code == 0, done.stderr
    one, two = (first_model(tmp_path / name) for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_resumed_run_is_not_centred_again(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(
        start_module,
        "centre_pyramid",
        lambda passes, neck: calls.append(1) or centre_pyramid(passes, neck),
    )
    schedule = [
        {"step": "train", "name": "A", "learns": PARTS, "epochs": 1},
        {"step": "project"},
        {"step": "fit-head"},
    ]

    def interrupt(point: str) -> None:
        if point == "project":
            raise KeyboardInterrupt

    config = tiny(train__schedule=schedule)
    with observed_by(interrupt), pytest.raises(KeyboardInterrupt):
        train_run(config, phantoms, tmp_path / "run")
    assert len(calls) == 1
    train_run(config, phantoms, tmp_path / "run", resume=True)
    assert len(calls) == 1


def test_maps_that_are_held_and_maps_that_are_not_give_the_same_start(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, held = start(phantoms, tmp_path / "drawn"), start(phantoms, tmp_path / "held")
    centre_pyramid(held.passes, held.model.neck)
    monkeypatch.setattr("protopyramid.training.start.HELD_BYTES", 0)
    computed = start(phantoms, tmp_path / "computed")
    centre_pyramid(computed.passes, computed.model.neck)
    before, one, other = (each.model.neck.state_dict() for each in (drawn, held, computed))
    assert all(torch.equal(one[name], tensor) for name, tensor in other.items())
    assert any(not torch.equal(before[name], tensor) for name, tensor in other.items())


def test_the_backbone_of_another_run_is_taken_whole(reference: Reference, tmp_path: Path) -> None:
    config = tiny(
        "iaia-bl",
        model__neck__dim=8,
        train__schedule=[
            {"step": "train", "learns": ["neck", "prototypes"], "epochs": 1},
            {"step": "project"},
            {"step": "fit-head"},
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


FROZEN = [{"step": "train", "name": "A", "learns": PARTS, "epochs": 1}, *HEAD_ALONE[1:]]
LEARNING = [{**FROZEN[0], "learns": ["backbone", *PARTS]}, *HEAD_ALONE[1:]]


def start_warnings(config: Config, backbone_from: Path | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_frozen_random_backbone(config, backbone_from)
    return [str(each.message) for each in caught]


def test_a_frozen_random_backbone_is_warned_of_in_one_line(phantoms: Path, tmp_path: Path) -> None:
    config = tiny(train__schedule=FROZEN)
    (line,) = start_warnings(config)
    assert "phase A trains on a frozen backbone with random weights" in line
    assert "weights=imagenet" in line and "--backbone-from" in line and "\n" not in line
    with pytest.warns(UserWarning, match="frozen backbone with random weights"):
        train_run(config, phantoms, tmp_path / "run")


def test_frozen_random_first_blocks_are_warned_of_too() -> None:
    """So it is where the variant, which keeps ImageNet's first blocks, is trained without weights."""
    ours = load_config("protopyramid", {"model.backbone.weights": "none"})
    (line,) = start_warnings(ours)
    assert "phase C trains on frozen first blocks of the backbone (1 to 3) with random" in line
    assert start_warnings(load_config("protopyramid")) == []
    every = [f"backbone.{number}" for number in range(1, 6)]
    assert start_warnings(tiny(train__schedule=[{**FROZEN[0], "learns": every}, *FROZEN[1:]])) == []


def test_a_backbone_that_learns_or_has_learned_is_not_warned_of(tmp_path: Path) -> None:
    assert start_warnings(tiny(train__schedule=LEARNING)) == []
    assert start_warnings(tiny(train__schedule=FROZEN), tmp_path) == []
    assert start_warnings(tiny(train__schedule=FROZEN, model__backbone__weights="imagenet")) == []
    once = [LEARNING[0], FROZEN[0], *HEAD_ALONE[1:]]  # by phase A, it has learned
    assert start_warnings(tiny(train__schedule=once)) == []


def test_another_runs_backbone_takes_the_place_of_the_weights(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is downloaded, although the preset starts from ImageNet."""

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(start_module, "start_backbone", never)
    config = tiny(train__schedule=HEAD_ALONE, model__backbone__weights="imagenet")
    out = train_run(config, reference.manifest, tmp_path / "run", backbone_from=reference.folder)
    assert json.loads((out / "data.json").read_text())["backbone"] == "run run"


def test_weights_that_are_missing_leave_no_run_behind(phantoms: Path, tmp_path: Path) -> None:
    config = tiny(model__backbone__weights="nowhere.safetensors")
    with pytest.raises(UserError, match="nowhere"):
        train_run(config, phantoms, tmp_path / "run")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_run_records_how_it_differs_from_the_paper(reference: Reference, tmp_path: Path) -> None:
    facts = json.loads((reference.folder / "data.json").read_text())
    assert facts["differences"] == [each.to_json() for each in differences(tiny(), "random")]
    assert {"key", "paper", "run"} == set(facts["differences"][0])
    weights = "model.backbone.weights"
    assert weights in [each["key"] for each in facts["differences"]]
    config = tiny(train__schedule=HEAD_ALONE)
    out = train_run(config, reference.manifest, tmp_path / "run", backbone_from=reference.folder)
    later = json.loads((out / "data.json").read_text())["differences"]
    assert later == [each.to_json() for each in differences(config, "run run")]
    assert weights not in [each["key"] for each in later]
