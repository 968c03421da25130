"""What a study says of several seeds at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from protopyramid.evaluation.comparison import EvaluatedRun
from protopyramid.metrics.bootstrap import RESAMPLES, resample_weights
from protopyramid.metrics.paired_test import Difference, Pair, paired_differences
from protopyramid.metrics.softmax import softmax
from protopyramid.studies import study as module
from protopyramid.studies.plan import Study
from protopyramid.studies.study import Place, over_replicates, resample_together

CLASSES = ["a", "b", "negative"]
N = 60


def the_study(seeds: list[int], **settings: Any) -> Study:
    variants = [{"name": name, "preset": "vgg16"} for name in ("first", "second")]
    return Study.model_validate(
        {"title": "T", "data": "manifest", "seeds": seeds, "variants": variants} | settings
    )


def evaluated(path: Path, rows: str = "same") -> EvaluatedRun:
    """Made-up probabilities, another draw for each run; `second` knows more than `first`."""
    labels = np.arange(N) % 3
    seed = int(path.parent.name.removeprefix("seed-"))
    rng = np.random.default_rng((seed, len(path.name)))
    logits = rng.normal(size=(N, 3))
    logits[np.arange(N), labels] += 2.0 if path.name == "second" else 0.5
    facts = SimpleNamespace(classes=CLASSES, negative_class="negative", rows=rows)
    names = tuple(CLASSES[label] for label in labels)
    patients = tuple(str(row // 2) for row in range(N))
    return EvaluatedRun(path.name, facts, names, patients, softmax(logits))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch):
    """Runs that are only evaluations; gives what to call when seeds have other images."""
    rows = {"of": lambda path: "same"}
    monkeypatch.setattr(module, "load_run", lambda path: SimpleNamespace(name=path.name, at=path))
    monkeypatch.setattr(
        module, "stored_evaluation", lambda run, *_: evaluated(run.at, rows["of"](run.at))
    )
    return rows


def test_the_difference_over_seeds_is_the_mean_of_the_seeds(made_up, tmp_path):
    place = Place(tmp_path / "study.toml", tmp_path)
    both = over_replicates(the_study([0, 1]), place)
    differences = []
    for seed in (0, 1):
        first, second = (
            evaluated(tmp_path / f"seed-{seed}/{name}") for name in ("first", "second")
        )
        labels = np.array([CLASSES.index(label) for label in first.labels])
        weights = resample_weights(first.patients, 10, 0)
        pair = Pair(first.probabilities, second.probabilities, labels, weights)
        differences.append(paired_differences([pair], CLASSES, "negative")["mean"].difference)
    assert len(both) == 1
    assert both[0].difference == pytest.approx(np.mean(differences)) and differences[0] > 0
    low, high = both[0].ci95
    assert low < both[0].difference < high


def test_there_is_no_common_test_of_phantoms_of_one_seed_or_of_other_images(made_up, tmp_path):
    place = Place(tmp_path / "study.toml", tmp_path)
    assert over_replicates(the_study([0, 1], data="phantoms"), place) is None
    assert over_replicates(the_study([0]), place) is None
    made_up["of"] = lambda path: path.name
    assert over_replicates(the_study([0, 1]), place) is None


def test_folds_have_a_common_test_though_their_images_differ(made_up, tmp_path):
    place = Place(tmp_path / "study.toml", tmp_path)
    made_up["of"] = lambda path: path.parent.name
    assert over_replicates(the_study([0, 1], folds=2), place) is not None


def test_a_saliency_method_that_one_seed_lacks_has_no_mean_over_replicates():
    test = Difference(0.1, (0.0, 0.2), 0.04)
    rows = (
        SimpleNamespace(name="first", against_first=None),
        SimpleNamespace(name="second", against_first={"mean": test}),
    )
    row = SimpleNamespace(method="Grad-CAM", fine=None, lesion=0.5, area=0.25)
    seeds = [SimpleNamespace(rows=rows, localisation=found) for found in ((row,), ())]
    text = module.render_comparisons(the_study([0, 1]), seeds)
    assert "| Grad-CAM | – | – | – |" in text
    assert "| Grad-CAM | – | .500 " in module.render_comparisons(the_study([0]), seeds[:1])


def test_a_patient_is_drawn_as_often_in_every_split():
    patients = [["a", "b", "b"], ["c", "a", "d"]]
    first, second = resample_together(patients)
    assert first.shape == second.shape == (RESAMPLES, 3)
    assert (first[:, 0] == second[:, 1]).all() and (first[:, 1] == first[:, 2]).all()
    one_each = first[:, 0] + first[:, 1] + second[:, 0] + second[:, 2]
    assert (one_each == 4).all() and first[:, 0].std() > 0


def test_splits_with_the_same_patients_are_drawn_as_a_single_one_is():
    patients = ["b", "a", "b", "c"]
    alone = resample_weights(patients, RESAMPLES, 0)
    assert all((each == alone).all() for each in resample_together([patients, patients]))
