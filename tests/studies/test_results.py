"""What studies store is read back; damaged files are refused in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.studies.results import (
    CrossValidation,
    MeanAndSpread,
    OcclusionControl,
    ShiftTest,
    read_occlusion_control,
    read_shift_test,
)

RECORDED = Path(__file__).parents[1] / "golden/expected/values.json"


def test_a_cross_validation_of_an_earlier_version_dumps_the_same_json():
    recorded = json.loads(RECORDED.read_text())["crossval/crossval.json"]
    assert CrossValidation.from_json(recorded).to_json() == recorded
    with pytest.raises(UserError, match=r"x\.json: damaged: folds: .* again$"):
        CrossValidation.from_json({**recorded, "folds": "two"}, "x.json")


def test_mean_and_spread_leave_out_what_is_undefined():
    found = MeanAndSpread.of([0.5, None, 0.9])
    assert found.mean == pytest.approx(0.7)
    assert found.spread == pytest.approx(np.std([0.5, 0.9], ddof=1))
    assert MeanAndSpread.of([None]) == MeanAndSpread(None, None)


def test_controls_are_read_from_the_files_of_earlier_versions(tmp_path):
    folder = RunFolder(tmp_path)
    assert read_occlusion_control(folder) is None and read_shift_test(folder) is None
    folder.write_json("evaluation/control.json", {"auroc": None, "model": "a"})
    folder.write_json("evaluation/moved.json", {"lesion": 0.5, "stayed": 0.1, "model": "a"})
    assert read_occlusion_control(folder) == OcclusionControl(None, "a")
    assert read_shift_test(folder) == ShiftTest(0.5, 0.1, "a")
    folder.write_json("evaluation/moved.json", {"lesion": 0.5})
    with pytest.raises(UserError, match=r"moved\.json: damaged: stayed: .* run the study again"):
        read_shift_test(folder)
