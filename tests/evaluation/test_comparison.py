"""Comparison: the same rows for every run, a paired test, and refusals."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import compare, run_names
from protopyramid.evaluation.comparison_results import Comparison
from protopyramid.evaluation.evaluate import evaluate_run
from protopyramid.figures import evaluation_plots as plots
from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.metrics.paired_test import Pair, paired_differences
from protopyramid.metrics.softmax import softmax
from protopyramid.runs.run import load_run

FEW = 50
MODIFIED = ["FPN-IAIA-BL, modified", "IAIA-BL, modified", "VGG-16"]  # small runs of each


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are not looked at here, and take most of the time."""
    monkeypatch.setattr(plots, "draw_all", lambda *_: {})


def test_runs_stand_side_by_side_with_a_test_against_the_first(new_run, tmp_path) -> None:
    runs = [new_run(name, name) for name in ("fpn-iaia-bl", "iaia-bl", "vgg16")]
    result = compare(runs, bootstrap=FEW)
    assert [row.name for row in result.rows] == MODIFIED
    stored = [run.folder.read_json("evaluation/test.json") for run in runs]
    for row, figures in zip(result.rows, stored, strict=True):
        assert row.auroc.per_class == pytest.approx(figures["auroc"]["per_class"])
    assert result.rows[0].against_first is None
    test = result.rows[2].against_first["mean"]
    difference = stored[2]["auroc"]["mean"] - stored[0]["auroc"]["mean"]
    assert test.difference == pytest.approx(difference)
    assert test.ci95[0] <= difference <= test.ci95[1]
    assert [row.method for row in result.localisation] == MODIFIED[:2]
    assert set(result.localisation[0].per_level) == set("2345")
    written = {path.name for path in result.write(tmp_path / "out")}
    content = json.loads((tmp_path / "out/comparison.json").read_text())
    assert content == result.to_json()
    assert Comparison.from_json(content) == replace(result, digest="")
    assert written == {"comparison.md", "comparison.csv", "comparison.json"}
    rows = list(csv.DictReader(io.StringIO(result.csv())))
    assert float(rows[1]["auroc_mean"]) == pytest.approx(stored[1]["auroc"]["mean"])
    assert rows[2]["fine"] == ""
    lines = [line for line in result.markdown().splitlines() if line.startswith("| VGG-16")]
    assert len(lines) == 1 and lines[0].count("[") == 5


def test_rows_are_aligned_by_content_whatever_their_order(new_run, phantom_manifest) -> None:
    first, second = new_run("a"), new_run("b")
    lines = phantom_manifest.read_text().splitlines()
    backwards = phantom_manifest.parent / "backwards.csv"
    backwards.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    evaluate_run(first, bootstrap=FEW)
    evaluate_run(second, backwards, bootstrap=FEW)
    test = compare([first, second], bootstrap=FEW).rows[1].against_first["mean"]
    assert test.difference == 0 and test.ci95 == (0, 0)


def test_saliency_of_a_black_box_is_measured_like_prototypes(new_run) -> None:
    def centre(model: torch.nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        maps = torch.zeros(len(images), *images.shape[-2:])
        maps[:, 24:40, 24:40] = 1
        return maps

    run = new_run("vgg16", "vgg16")
    result = compare(
        [run], bootstrap=FEW, methods={"centre": centre, "blank": lambda m, x, t: x[:, 0] * 0}
    )
    named = {row.method: row for row in result.localisation}
    middle, blank = named["VGG-16, centre"], named["VGG-16, blank"]
    assert middle.area == pytest.approx(1 / 16)
    assert middle.lesion > middle.lesion_chance
    assert blank.lesion == pytest.approx(blank.lesion_chance)
    assert blank.area == 1


def test_leaked_results_are_refused(new_run) -> None:
    run = new_run()
    evaluate_run(run, split="train", force=True, bootstrap=FEW)
    with pytest.raises(UserError, match=r"train\.json: is leaked"):
        compare([run], split="train", bootstrap=FEW)


def test_an_evaluation_of_an_earlier_model_is_made_again(new_run) -> None:
    run = new_run()
    old = evaluate_run(run, bootstrap=FEW).auroc.mean
    with torch.no_grad():
        run.model.head.weight.copy_(-run.model.head.weight)
    run.folder.write_tensors("model.safetensors", run.model.state_dict())
    new = compare([load_run(run.folder.path)], bootstrap=FEW).rows[0].auroc.mean
    assert new != old
    assert run.folder.read_json("evaluation/test.json")["auroc"]["mean"] == new


def test_runs_on_other_images_or_classes_are_refused(new_run, phantom_manifest) -> None:
    first, second = new_run("a"), new_run("b")
    lines = phantom_manifest.read_text().splitlines()
    last = max(row for row, line in enumerate(lines) if ",test," in line)
    shorter = phantom_manifest.parent / "shorter.csv"
    shorter.write_text("\n".join(lines[:last] + lines[last + 1 :]) + "\n")
    evaluate_run(second, shorter, bootstrap=FEW)
    with pytest.raises(UserError, match="not the same as"):
        compare([first, second], bootstrap=FEW)
    test_rows = sum(",test," in line for line in lines)
    assert compare([first, second], shorter, bootstrap=FEW).n == test_rows - 1
    turned = ["negative", "spiculated", "indistinct", "circumscribed"]
    other = new_run("c", **{"data.classes": turned})
    with pytest.raises(UserError, match="same classes in the same order"):
        compare([first, other], phantom_manifest, bootstrap=FEW)
    with pytest.raises(UserError, match="no run given"):
        compare([])


def test_runs_of_one_system_are_named_by_their_folder(new_run) -> None:
    runs = [new_run("a"), new_run("b", seed=1), new_run("vgg16", "vgg16")]
    assert run_names(runs) == ["FPN-IAIA-BL, modified (a)", "FPN-IAIA-BL, modified (b)", "VGG-16"]


def test_a_better_model_is_found_better() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    good, bad = (
        softmax(np.stack([-x, x], 1))
        for x in (labels + 0.5 * rng.normal(size=200), rng.normal(size=200))
    )
    weights = resample_weights([str(i) for i in range(200)], 500, 0)
    found = paired_differences([Pair(bad, good, labels, weights)], ["no", "yes"], "")["mean"]
    assert found.difference > 0.3 and found.ci95[0] > 0 and found.p < 0.01
