"""Out-of-distribution images are flagged; others are, about as often as promised."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run
from protopyramid.inference.ood import (
    MAX_FEATURES,
    OodFeatures,
    digest_of,
    fit_gaussian,
    fit_limits,
    image_statistics,
    limits_are_current,
    limits_digest,
    limits_for,
    mahalanobis,
    ood_features,
    read_limits,
    shrunk_covariance,
    validation_limits,
    write_limits,
    write_threshold,
)
from protopyramid.inference.prediction import predict_manifest


def drawn(rng: np.random.Generator, n: int, p: int) -> torch.Tensor:
    """Correlated features of n images."""
    mixing = np.random.default_rng(99).normal(size=(p, p))
    return torch.from_numpy(rng.normal(size=(n, p)) @ mixing + 5)


def test_the_covariance_is_that_of_scikit_learn() -> None:
    covariance = pytest.importorskip("sklearn.covariance")
    for n, p in ((200, 5), (12, 30)):
        values = drawn(np.random.default_rng(n), n, p).numpy()
        centred = values - values.mean(0)
        expected = covariance.ledoit_wolf(centred, assume_centered=True)[0]
        assert shrunk_covariance(centred) == pytest.approx(expected, abs=1e-5)


def test_distances_are_mahalanobis_distances() -> None:
    values = drawn(np.random.default_rng(0), 40, 3).numpy()
    mean, scale, inverse = fit_gaussian(values)
    found = mahalanobis(values, mean, scale, inverse)
    covariance = shrunk_covariance((values - mean) / scale) * np.outer(scale, scale)
    for value, row in zip(found, values, strict=True):
        away = row - values.mean(0)
        assert value == pytest.approx(np.sqrt(away @ np.linalg.solve(covariance, away)), rel=1e-6)


@pytest.mark.parametrize("n", [40, 400])
def test_about_one_in_distribution_image_in_twenty_is_flagged(n: int) -> None:
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        limits = fit_limits(
            OodFeatures(drawn(rng, n, 8), drawn(rng, n, 3)), list(map(str, range(n)))
        )
        assert limits is not None
        fresh = OodFeatures(drawn(rng, 500, 8), drawn(rng, 500, 3))
        shares.append((limits.relative_distance(fresh) > 1).mean())
    assert 0.02 < np.mean(shares) < 0.09


def test_features_that_never_go_together_are_flagged_though_each_is_common() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=200)
    both = np.stack([first, first + 0.1 * rng.normal(size=200)], 1)
    features = OodFeatures(torch.from_numpy(both), torch.zeros(200, 1))
    limits = fit_limits(features, list(map(str, range(200))))
    assert limits is not None
    together, apart = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, -1.0]])
    assert limits.relative_distance(OodFeatures(together, torch.zeros(1, 1)))[0] < 1
    assert limits.relative_distance(OodFeatures(apart, torch.zeros(1, 1)))[0] > 1


def test_images_of_one_patient_are_not_measured_from_each_other() -> None:
    rng = np.random.default_rng(1)
    centres = drawn(rng, 30, 4).repeat_interleave(4, 0)
    values = centres + 0.01 * torch.from_numpy(rng.normal(size=(120, 4)))
    features = OodFeatures(values, torch.zeros(120, 1))
    by_patient = fit_limits(features, [str(row // 4) for row in range(120)])
    by_image = fit_limits(features, [str(row) for row in range(120)])
    assert by_patient is not None and by_image is not None
    assert by_patient.model.limit > by_image.model.limit


def test_how_an_image_looks_is_brightness_roughness_and_colour() -> None:
    grey = torch.linspace(0, 1, 64).expand(1, 1, 64, 64)
    found = image_statistics(grey)[0]
    assert found[0] == pytest.approx(0.5)
    assert found[4] == pytest.approx(0.5)  # the median
    assert found[7:9].tolist() == pytest.approx([0, 1 / 63])  # down, across
    assert found[-1] == 0
    assert image_statistics(torch.cat([grey, grey, 0 * grey], 1))[0, -1] > 0.1
    assert torch.isfinite(image_statistics(torch.zeros(1, 3, 16, 16))).all()


def test_constant_features_and_few_images_give_finite_distances() -> None:
    features = OodFeatures(torch.ones(3, 4), torch.zeros(3, 2))
    limits = fit_limits(features, ["a", "a", "b"])
    assert limits is not None
    assert (limits.relative_distance(features) <= 1).all()
    other = OodFeatures(2 * torch.ones(1, 4), torch.zeros(1, 2))
    assert limits.relative_distance(other)[0] > 1 and np.isfinite(
        limits.relative_distance(other)[0]
    )
    assert fit_limits(features, ["a", "a", "a"]) is None


def test_a_great_many_prototypes_are_looked_at_in_part() -> None:
    scores = torch.arange(2000.0)[None]
    found = ood_features(torch.zeros(1, 1, 16, 16), scores, scores[:, :0]).model
    assert found.shape == (1, MAX_FEATURES)
    assert found[0, 0] == 0 and found[0, -1] == 1999


@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "iaia-bl", "vgg16"])
def test_limits_survive_the_run_folder_and_flag_ood_images(
    preset: str, new_run, phantom_manifest, tmp_path: Path
) -> None:
    run = new_run(preset=preset)
    evaluate_run(run, split="validation", bootstrap=5, pictures=False)
    written = (run.folder / "thresholds.json").read_text()
    write_threshold(run)
    again = json.loads((run.folder / "thresholds.json").read_text())
    assert again["images"] == len(read_manifest(phantom_manifest).split("validation"))
    assert json.loads(written)["model"]["mean"] == pytest.approx(again["model"]["mean"], rel=1e-4)
    flags = [each["unlike_training"] for each in predict_manifest(run, phantom_manifest)]
    assert np.mean(flags) < 0.3  # in distribution, and few to learn from
    noise = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.uint8)
    for name, picture in (("noise", noise), ("black", 0 * noise), ("white", 0 * noise + 255)):
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
        (record,) = run.predict([tmp_path / f"{name}.png"])
        assert record["unlike_training"] is True and record["unlikeness"] > 1


def test_limits_of_an_earlier_version_count_as_none(new_run) -> None:
    run = new_run()
    assert limits_for(run) is None
    old = {"quantile": 0.01, "images": 9, "similarity": {"2": 0.1}}
    run.folder.write_json("thresholds.json", old)
    assert limits_for(run) is None


def test_limits_that_do_not_fit_the_run_are_refused(new_run, phantom_manifest) -> None:
    run, other = new_run(), new_run("other", "iaia-bl")
    samples = read_manifest(phantom_manifest).split("validation")
    limits = validation_limits(other.model, ImageStore(samples, other.config.data))
    write_limits(run.folder, limits, limits_digest(run))
    with pytest.raises(UserError, match=r"another model .* compute it again with: .* validation"):
        limits_for(run)
    for content in ({}, [], {"images": 1, "false_flags": 0.05, "model": {}, "image": {}}):
        run.folder.write_json("thresholds.json", content)
        with pytest.raises(UserError, match=r"thresholds\.json: damaged; compute it again"):
            read_limits(run.folder)
    assert validation_limits(other.model, ImageStore([], other.config.data)) is None


def test_too_few_patients_for_limits_is_said(new_run) -> None:
    run = new_run()
    with pytest.warns(UserWarning, match="fewer than two patients"):
        write_limits(run.folder, None, "")
    assert not (run.folder / "thresholds.json").exists()


@pytest.fixture
def limited(new_run):
    """A run with limits."""
    run = new_run()
    write_threshold(run)
    return run


def changed_model(run, **settings):
    return run.config.model_copy(update={"model": run.config.model.model_copy(update=settings)})


def test_limits_of_other_settings_or_another_model_are_refused(limited) -> None:
    assert limits_for(limited) is not None
    other = replace(limited, config=changed_model(limited, tta=4))
    with pytest.raises(UserError, match=r"model\.tta.*compute it again with: .* validation"):
        limits_for(other)
    assert limits_are_current(limited) and not limits_are_current(other)
    data = limited.config.data.model_copy(update={"mean": (0.1, 0.2, 0.3)})
    other = replace(limited, config=limited.config.model_copy(update={"data": data}))
    with pytest.raises(UserError, match="other settings"):
        limits_for(other)
    with torch.no_grad():
        limited.model.head.weight.mul_(2)
    limited.folder.write_tensors("model.safetensors", limited.model.state_dict())
    with pytest.raises(UserError, match="another model"):
        limits_for(limited)


def test_settings_of_training_alone_do_not_invalidate_limits(limited) -> None:
    train = limited.config.train.model_copy(update={"seed": 99, "eval_batch_size": 3})
    config = limited.config.model_copy(update={"train": train})
    assert limits_for(replace(limited, config=config)) is not None


def test_limits_without_a_digest_are_accepted(limited) -> None:
    content = limited.folder.read_json("thresholds.json")
    del content["digest"]
    limited.folder.write_json("thresholds.json", content)
    limits = limits_for(limited)
    assert limits is not None and limits.digest is None


def test_limits_are_read_once_and_again_when_the_file_changes(limited, monkeypatch) -> None:
    reads = []

    def counted(folder):
        reads.append(folder)
        return read_limits(folder)

    monkeypatch.setattr("protopyramid.inference.ood.read_limits", counted)
    first = limits_for(limited)
    assert limits_for(limited) is first and len(reads) == 1
    content = limited.folder.read_json("thresholds.json")
    limited.folder.write_json("thresholds.json", {**content, "images": 3})
    assert limits_for(limited).images == 3 and len(reads) == 2
    (limited.folder / "thresholds.json").unlink()
    assert limits_for(limited) is None


def test_progress_is_reported_while_limits_are_computed(new_run, phantom_manifest) -> None:
    run = new_run(**{"train.eval_batch_size": 3})
    calls: list[tuple[int, int]] = []
    write_threshold(run, lambda done, total: calls.append((done, total)))
    total = len(read_manifest(phantom_manifest).split("validation"))
    assert calls == [(min(done, total), total) for done in range(0, total + 3, 3)]


def test_the_digest_of_a_model_in_memory_is_that_of_its_file(limited) -> None:
    from protopyramid.prototypes.edited_run import _model_bytes

    assert digest_of(_model_bytes(limited.model), limited.config) == limits_digest(limited)
