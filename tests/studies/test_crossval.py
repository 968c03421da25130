"""Cross-validation: nobody is predicted by a model that has seen them, and nothing is done twice."""

from __future__ import annotations

import csv
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from protopyramid import api
from protopyramid.config import dump_config
from protopyramid.data.images import normalise, prepare_sample
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.runs.run import load_run
from protopyramid.studies.crossval import cross_validate, summary_lines
from protopyramid.studies.results import CrossValidation

from ..harness import Command, Reference, copy_manifest, fault, tiny

FINISH = [{"step": "project"}, {"step": "fit-head"}]
FOLDS, SEEDS = 2, (0, 3)


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crossval-config") / "quick.toml"
    path.write_text(dump_config(tiny(train__schedule=FINISH)))
    return path


@pytest.fixture(scope="module")
def data(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The phantoms, with test images that cannot be read and a column of the user's own."""
    folder = tmp_path_factory.mktemp("crossval-data")
    path = copy_manifest(phantoms, folder, lambda row: f'{row},"a, note"')
    path.write_text(path.read_text().replace("lesion_y1\n", "lesion_y1,note\n", 1))
    for sample in read_manifest(path).split("test"):
        sample.image.write_bytes(b"not an image")
    return path


@pytest.fixture(scope="module")
def done(
    command: Command, toml: Path, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A cross-validation that was killed, stopped, and then let run to its end."""
    out = tmp_path_factory.mktemp("crossval") / "out"
    arguments = ["crossval", toml, "--data", data, "--folds", "2", "--seeds", "0,3", "--out", out]
    killed = command(*arguments, faults=[fault("fit-head", 2)])
    assert killed.code == -signal.SIGKILL, killed.stderr
    first = out / "seed-0/fold-0/model.safetensors"
    before = first.stat().st_mtime_ns
    stop = fault("project-batch", 3, signal.SIGTERM)
    stopped = command(*arguments, faults=[stop])
    assert stopped.code == 143, stopped.stderr
    assert "Continue with: protopyramid crossval" in stopped.stderr.splitlines()[-1]
    ended = command(*arguments)
    assert ended.code == 0, ended.stderr
    assert first.stat().st_mtime_ns == before  # a finished run is not trained again
    return out, ended.stdout


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_image_is_predicted_once_a_seed_and_test_rows_never(
    done: tuple[Path, str], data: Path
) -> None:
    manifest = read_manifest(data)
    wanted = {s.name for s in manifest.samples if s.split != "test"}
    counts = Counter((row["image"], row["seed"]) for row in rows(done[0]))
    assert set(counts) == {(name, str(seed)) for name in wanted for seed in SEEDS}
    assert set(counts.values()) == {1}
    facts = {s.name: (s.label, s.patient_id) for s in manifest.samples}
    for row in rows(done[0]):
        assert (row["label"], row["patient_id"]) == facts[row["image"]]
        probabilities = [float(row[name]) for name in tiny().data.classes]
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)


def test_patients_are_whole_and_classes_even_in_every_fold(done: tuple[Path, str]) -> None:
    for seed in SEEDS:
        mine = [row for row in rows(done[0]) if row["seed"] == str(seed)]
        folds = {
            row["patient_id"]: {r["fold"] for r in mine if r["patient_id"] == row["patient_id"]}
            for row in mine
        }
        assert all(len(found) == 1 for found in folds.values())
        per_fold = Counter((row["fold"], row["label"]) for row in mine)
        assert set(per_fold.values()) == {4}


def test_a_run_is_chosen_on_patients_that_it_neither_learns_from_nor_predicts(
    done: tuple[Path, str],
) -> None:
    for seed in SEEDS:
        for fold in range(FOLDS):
            run = done[0] / f"seed-{seed}/fold-{fold}"
            manifest = read_manifest(run / "manifest.csv")
            patients = [
                {sample.patient_id for sample in manifest.split(name)}
                for name in ("train", "validation", "test")
            ]
            assert all(patients)
            assert not (patients[0] & patients[1] or patients[0] & patients[2])
            assert not patients[1] & patients[2]
            facts = json.loads((run / "data.json").read_text())
            assert set(facts["splits"]["train"]) == {s.name for s in manifest.split("train")}
            assert {sample.extra["note"] for sample in manifest.samples} == {"a, note"}
            assert load_run(run).config.train.seed == seed
            predicted = {
                Path(row["image"]).name
                for row in rows(done[0])
                if (row["seed"], row["fold"]) == (str(seed), str(fold))
            }
            assert predicted == {sample.image.name for sample in manifest.split("test")}


def test_predictions_are_those_of_the_folds_own_run(done: tuple[Path, str]) -> None:
    run = load_run(done[0] / "seed-3/fold-1")
    samples = read_manifest(done[0] / "seed-3/fold-1/manifest.csv").split("test")
    images = torch.stack([prepare_sample(sample, run.config.data).image for sample in samples])
    with torch.no_grad():
        expected = run.model(normalise(images, run.config.data)).logits.softmax(1).numpy()
    found = {
        Path(row["image"]).name: [float(row[name]) for name in run.config.data.classes]
        for row in rows(done[0])
        if (row["seed"], row["fold"]) == ("3", "1")
    }
    for sample, wanted in zip(samples, expected, strict=True):
        assert found[sample.image.name] == pytest.approx(wanted, abs=1e-5)


def macro_auroc(some: list[dict[str, str]]) -> float:
    lesions = [row for row in some if row["label"] != "negative"]
    return float(
        np.mean(
            [
                roc_auc_score(
                    [r["label"] == name for r in lesions], [float(r[name]) for r in lesions]
                )
                for name in ("circumscribed", "indistinct", "spiculated")
            ]
        )
    )


def test_mean_and_spread_are_those_of_the_predictions(done: tuple[Path, str]) -> None:
    summary: dict[str, Any] = json.loads((done[0] / "crossval.json").read_text())
    values = []
    for run in summary["runs"]:
        own = [
            row
            for row in rows(done[0])
            if (row["seed"], row["fold"]) == (str(run["seed"]), str(run["fold"]))
        ]
        assert run["images"] == len(own) == 16
        assert run["auroc"] == pytest.approx(macro_auroc(own))
        values.append(run["auroc"])
    assert len(values) == FOLDS * len(SEEDS)
    assert summary["auroc"]["mean"] == pytest.approx(np.mean(values))
    assert summary["auroc"]["spread"] == pytest.approx(np.std(values, ddof=1))
    pooled = [macro_auroc([r for r in rows(done[0]) if r["seed"] == str(s)]) for s in SEEDS]
    assert summary["pooled_auroc"]["mean"] == pytest.approx(np.mean(pooled))
    lines = done[1].splitlines()
    assert lines[-1] == str(done[0])
    assert lines[-4:-1] == summary_lines(CrossValidation.from_json(summary))
    assert lines[-4] == (
        f"macro AUROC over 4 runs: {np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    )


def test_other_folds_in_the_same_folder_are_refused(done: tuple[Path, str], data: Path) -> None:
    config = tiny(train__schedule=FINISH)
    with pytest.raises(UserError, match="from a different dataset, folds or seeds"):
        cross_validate(config, data, done[0], 3, [0])
    changed = tiny(train__schedule=FINISH, head_fit__l1=0.5)
    with pytest.raises(UserError, match="started with another configuration"):
        cross_validate(changed, data, done[0], 2, [0])


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_must_be_different_numbers(data: Path, tmp_path: Path, seeds: list[int]) -> None:
    with pytest.raises(UserError, match="--seeds"):
        cross_validate(tiny(), data, tmp_path, 2, seeds)


def test_more_folds_than_patients_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="30 folds of 8 patients"):
        cross_validate(tiny(), data, tmp_path, 30, [0])


def test_a_backbone_that_has_seen_the_images_is_warned_about(
    reference: Reference, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="was trained on 32 of the 32 images"):
        summary = cross_validate(
            tiny(train__schedule=FINISH),
            reference.manifest,
            tmp_path / "out",
            2,
            [0],
            backbone_from=reference.folder,
        )
    assert summary.pooled_auroc.spread is None
    assert "±" not in summary_lines(summary)[2]


def test_a_fold_that_cannot_be_trained_on_is_told_before_anything_is_written(
    command: Command, toml: Path, data: Path, tmp_path: Path
) -> None:
    many = ["--set", "model.prototypes.counts={5=7}"]  # more than a fold has images of a class
    out = tmp_path / "out"
    refused = command("crossval", toml, "--data", data, "--folds", "2", "--out", out, *many)
    assert refused.code == 2 and len(refused.stderr.splitlines()) == 1, refused.stderr
    assert f"{data} (seed 0, fold 0): class circumscribed has" in refused.stderr
    assert not out.exists()


def test_a_run_that_fails_leaves_nothing_and_says_what_is_kept(
    command: Command, toml: Path, data: Path, tmp_path: Path
) -> None:
    own = copy_manifest(data, tmp_path / "data", lambda row: row)
    arguments = ["crossval", toml, "--data", own, "--folds", "2", "--out", tmp_path / "out"]
    weights = ["--set", f"model.backbone.weights={tmp_path / 'none.pth'}"]
    refused = command(*arguments, *weights)
    assert refused.code == 2 and "none.pth: no such file" in refused.stderr, refused.stderr
    assert not (tmp_path / "out").exists()


def test_a_later_run_that_fails_says_that_the_finished_ones_are_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, begun = api.train, []

    def failing(config: Any, manifest: Any, out: Path, **options: Any) -> Any:
        begun.append(out)
        if len(begun) == 2:
            raise UserError("a.png: no such image file; check the path")
        return train(config, manifest, out, **options)

    monkeypatch.setattr(api, "train", failing)
    config, out = tiny(train__schedule=FINISH), tmp_path / "out"
    with pytest.raises(UserError, match=rf"a\.png: .*; the finished runs in {out} are kept"):
        cross_validate(config, data, out, 2, [0])
    assert (out / "seed-0/fold-0/model.safetensors").exists()
    assert not (out / "seed-0/fold-1").exists()
