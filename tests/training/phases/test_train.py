"""The train phase: what learns, what stays, what is measured, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from protopyramid.config.schema import Config
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.losses.objective import Losses
from protopyramid.model import build_model
from protopyramid.runs.folder import RunFolder
from protopyramid.training.checkpoint import Restored
from protopyramid.training.engine import train_run
from protopyramid.training.phases.train import LossModule
from protopyramid.training.schedule import Phase
from protopyramid.training.trainer import Trainer

from ...harness import Command, Reference, tiny

FINISH = [{"step": "project"}, {"step": "fit-head"}]


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
    """The model before and after each phase of a training, with the phase's name."""
    seen = []
    original = Trainer.run_phase

    def copy(model: torch.nn.Module) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def watched(self: Trainer, phase: Phase, restored: Restored | None) -> None:
        before = copy(self.model)
        original(self, phase, restored)
        seen.append((phase.name, before, copy(self.model)))

    monkeypatch.setattr(Trainer, "run_phase", watched)
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
@pytest.mark.parametrize("copies", [0, 1])
def test_what_a_phase_does_not_name_stays_bit_identical(
    monkeypatch: pytest.MonkeyPatch,
    phantoms: Path,
    tmp_path: Path,
    learns: list[str],
    copies: int,
) -> None:
    phase = {"step": "train", "name": "only", "learns": learns, "epochs": 1, "views": copies}
    config = tiny(train__schedule=[phase, *FINISH])
    phases = states_around(monkeypatch, config, phantoms, tmp_path / "run")
    (_, before, after), (_, *projected), (_, *fitted) = phases
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
    phase = {"step": "train", "name": "only", "learns": learns, "epochs": 1}
    config = tiny(train__schedule=[phase, *FINISH], model__neck__batch_norm=True)
    (_, before, after), *_ = states_around(monkeypatch, config, phantoms, tmp_path / "run")
    moved = {name for name in changed(before, after) if name.startswith("neck.norm.")}
    assert bool(moved) == (learns == ["neck"])


@pytest.mark.parametrize(
    ("every", "measured"), [(1, [1, 2, 3, 4, 5]), (2, [2, 3, 4, 5]), (9, [3, 5])]
)
def test_validation_is_measured_every_few_epochs_and_at_the_end_of_each_phase(
    phantoms: Path, tmp_path: Path, every: int, measured: list[int]
) -> None:
    phase = {"step": "train", "learns": ["head"], "views": 1}
    schedule = [
        {**phase, "name": "first", "epochs": 3},
        {**phase, "name": "second", "epochs": 2},
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


@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_context_loss_counts_in_every_so_many_batches_and_its_mean_is_over_these(
    monkeypatch: pytest.MonkeyPatch, phantoms: Path, tmp_path: Path, every: int
) -> None:
    seen: list[dict[str, float]] = []
    original = LossModule.forward

    def watched(self: LossModule, *given: Any) -> Losses:
        losses = original(self, *given)
        seen.append({name: float(value.detach()) for name, value in losses.terms.items()})
        return losses

    monkeypatch.setattr(LossModule, "forward", watched)
    phase = {"step": "train", "name": "only", "learns": ["neck"], "epochs": 2}
    config = tiny(
        train__schedule=[phase, *FINISH],
        train__batch_size=4,
        loss__context=1.0,
        loss__context_every=every,
    )
    out = train_run(config, phantoms, tmp_path / "run")
    epochs = [
        line for line in RunFolder(out).read_lines("metrics.jsonl") if line["kind"] == "epoch"
    ]
    batches = len(seen) // 2
    assert batches > every
    for number, epoch in enumerate(epochs):
        terms = seen[number * batches : (number + 1) * batches]
        having = [place for place, each in enumerate(terms) if "context" in each]
        assert having == list(range(0, batches, every))
        for name in ("context", "cluster"):
            values = [each[name] for each in terms if name in each]
            assert epoch["losses"][name] == pytest.approx(sum(values) / len(values))


def test_without_prototypes_every_epoch_is_measured_since_each_may_be_the_best(
    phantoms: Path, tmp_path: Path
) -> None:
    schedule = [{"step": "train", "name": "all", "learns": ["backbone", "head"], "epochs": 3}]
    config = tiny("vgg16", train__schedule=schedule, train__validate_every=5)
    out = train_run(config, phantoms, tmp_path / "run")
    epochs = RunFolder(out).read_lines("metrics.jsonl")
    assert [bool(line["validation"]) for line in epochs] == [True] * 3
    assert any(line["best"] for line in epochs)


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


def test_nothing_to_learn_is_an_error_of_the_user(phantoms: Path, tmp_path: Path) -> None:
    config = tiny(
        "vgg16", train__schedule=[{"step": "train", "learns": ["prototypes"], "epochs": 1}]
    )
    with pytest.raises(UserError, match="has none of the parts"):
        train_run(config, phantoms, tmp_path / "run")
