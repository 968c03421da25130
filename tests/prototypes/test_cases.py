"""The training images behind the prototypes."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from protopyramid.runs.run import Run, load_run


def test_self_activation_is_one_at_the_patch_that_the_prototype_is(run: Run) -> None:
    cases = run.cases.look_up(record.index for record in run.prototypes)
    size = run.config.data.image_size
    for case in cases.values():
        level = {2: 16, 4: 4, 5: 4}[case.record.level]
        row = int((case.record.row + 0.5) * size / level)
        col = int((case.record.col + 0.5) * size / level)
        activation = case.region.activation
        assert activation.max() <= 1 + 1e-5
        assert activation[row - 1 : row + 1, col - 1 : col + 1].max() > 0.9


def test_the_region_of_a_case_is_the_box_in_prototypes_json(run: Run) -> None:
    for index, case in run.cases.look_up(record.index for record in run.prototypes).items():
        assert case.region.box == pytest.approx(run.prototypes[index].box, abs=1.01 / 64)


def test_a_run_with_another_model_has_cases_of_its_own(run: Run) -> None:
    before = run.cases.look_up([0])[0].region.activation
    other = copy.deepcopy(run.model)
    with torch.no_grad():
        other.prototypes.vectors.neg_()
    after = replace(run, model=other).cases.look_up([0])[0].region.activation
    np.testing.assert_allclose(after, -before, atol=1e-5)
    np.testing.assert_array_equal(run.cases.look_up([0])[0].region.activation, before)


def test_the_model_of_a_run_cannot_be_swapped_behind_its_cases(run: Run) -> None:
    with pytest.raises(FrozenInstanceError):
        run.model = copy.deepcopy(run.model)  # type: ignore[misc]


def test_a_case_is_passed_through_the_model_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, passes = load_run(run.folder.path), []
    once = fresh.model.forward_once
    monkeypatch.setattr(
        fresh.model, "forward_once", lambda images: passes.append(len(images)) or once(images)
    )
    fresh.cases.look_up([0, 1])
    fresh.cases.look_up([1, 2, 1])
    assert passes == [2, 1]


def test_a_case_has_the_cell_that_its_prototype_was_taken_from(run: Run) -> None:
    side = run.config.data.image_size
    for index, case in run.cases.look_up(range(len(run.prototypes))).items():
        record = run.prototypes[index]
        stride = run.model.backbone.strides[record.level]
        expected = (record.col, record.row, record.col + 1, record.row + 1)
        assert case.cell == pytest.approx([each * stride / side for each in expected])
