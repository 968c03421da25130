"""What a study says of several seeds at once."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from protopyramid.evaluation import metrics
from protopyramid.evaluation.comparison import Evaluated
from protopyramid.studies import study as module
from protopyramid.studies.plan import Study
from protopyramid.studies.study import Place, over_seeds

CLASSES = ["a", "b", "negative"]
N = 60


def the_study(seeds: list[int]) -> Study:
    variants = [{"name": name, "preset": "vgg16"} for name in ("first", "second")]
    return Study.model_validate({"title": "T", "seeds": seeds, "variants": variants})


def evaluated(path: Path, rows: str = "same") -> Evaluated:
    """Made-up probabilities, another draw for each run; `second` knows more than `first`."""
    labels = np.arange(N) % 3
    seed = int(path.parent.name.removeprefix("seed-"))
    rng = np.random.default_rng((seed, len(path.name)))
    logits = rng.normal(size=(N, 3))
    logits[np.arange(N), labels] += 2.0 if path.name == "second" else 0.5
    figures = {"classes": CLASSES, "negative_class": "negative", "rows": rows}
    names = tuple(CLASSES[label] for label in labels)
    patients = tuple(str(row // 2) for row in range(N))
    return Evaluated(path.name, figures, names, patients, metrics.softmax(logits))


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
    both = over_seeds(the_study([0, 1]), place)
    differences = []
    for seed in (0, 1):
        first, second = (
            evaluated(tmp_path / f"seed-{seed}/{name}") for name in ("first", "second")
        )
        labels = np.array([CLASSES.index(label) for label in first.labels])
        weights = metrics.resample_weights(first.patients, 10, 0)
        test = metrics.paired_differences(
            first.probabilities, second.probabilities, labels, CLASSES, "negative", weights
        )
        differences.append(test["mean"]["difference"])
    assert len(both) == 1
    assert both[0]["difference"] == pytest.approx(np.mean(differences)) and differences[0] > 0
    low, high = both[0]["ci95"]
    assert low < both[0]["difference"] < high


def test_seeds_with_other_images_have_no_common_test(made_up, tmp_path):
    place = Place(tmp_path / "study.toml", tmp_path)
    made_up["of"] = lambda path: path.parent.name
    assert over_seeds(the_study([0, 1]), place) is None
    made_up["of"] = lambda path: "same"
    assert over_seeds(the_study([0]), place) is None
