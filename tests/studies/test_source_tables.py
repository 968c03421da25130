"""The tables of a study by source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from protopyramid.data.manifest import Manifest, Sample
from protopyramid.evaluation.comparison import EvaluatedRun
from protopyramid.metrics.auroc import auroc
from protopyramid.metrics.localisation import PairMeanWithChance
from protopyramid.studies.by_source import OnSource
from protopyramid.studies.plan import Variant
from protopyramid.studies.source_tables import Tables, common_rows, control_aurocs, render_control

CLASSES = ("round", "spiky", "negative")
LEVELS = ("2", "5")


def precision(value: float, chance: float) -> PairMeanWithChance:
    return PairMeanWithChance(
        mean=value,
        ci95=None,
        per_class={"round": value + 0.1, "spiky": value - 0.1, "negative": None},
        per_level={"2": value, "5": value},
        images=3,
        pairs=6,
        chance=chance,
        chance_per_class={"round": chance, "spiky": chance / 2, "negative": None},
        chance_per_level={"2": chance, "5": chance},
        per_class_and_level={
            name: {"2": value, "5": value / 2} for name in ("round", "spiky", "negative")
        },
    )


def measured(
    seed: int, rows: range, system: str, knows: float, classes: tuple[str, ...] = CLASSES
) -> OnSource:
    """Made-up probabilities of the rows of a source; images are named by their number."""
    rng = np.random.default_rng((seed, len(system)))
    labels = [row % len(classes) for row in rows]
    logits = rng.normal(size=(len(rows), len(classes)))
    logits[np.arange(len(rows)), labels] += knows
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    both = SimpleNamespace(fine=precision(0.5, 0.2), lesion=precision(0.8, 0.4))
    confusion = np.zeros((len(classes), len(classes)), int)
    np.add.at(confusion, (labels, probabilities.argmax(1)), 1)
    evaluation: Any = SimpleNamespace(
        classes=classes,
        negative_class="negative" if "negative" in classes else "",
        system=system,
        health=None if system == "vgg16" else object(),
        activation_precision=both,
        confusion_matrix=tuple(map(tuple, confusion.tolist())),
    )
    run = EvaluatedRun(
        system,
        evaluation,
        tuple(classes[label] for label in labels),
        tuple(str(row // 2) for row in rows),
        probabilities,
        tuple(str(row) for row in rows),
    )
    return OnSource(run, {"Grad-CAM": both} if system == "vgg16" else {})


@pytest.fixture
def tables() -> Tables:
    variants = [
        Variant(name="vgg16-all", preset="vgg16"),
        Variant(name="ours-all", preset="protopyramid"),
        Variant(name="ours-film", preset="protopyramid", sources=["film"]),
    ]
    own, other = [range(0, 40), range(40, 80)], [range(0, 80)] * 2
    found = {
        "vgg16-all": {
            s: [measured(i, own[i], "vgg16", 0.5) for i in (0, 1)] for s in ("film", "cesm")
        },
        "ours-all": {
            s: [measured(i, own[i], "ours", 2.0) for i in (0, 1)] for s in ("film", "cesm")
        },
        "ours-film": {
            "film": [measured(i, own[i], "ours", 1.0) for i in (0, 1)],
            "cesm": [measured(i, other[i], "ours", 0.2, CLASSES) for i in (0, 1)],
        },
    }
    return Tables(variants, ["film", "cesm"], found)


def naive(run: EvaluatedRun, rows: list[int]) -> float:
    """Macro AUROC of the margins on some rows, by counting pairs."""
    values = []
    for name in ("round", "spiky"):
        column = CLASSES.index(name)
        ours = [row for row in rows if run.labels[row] == name]
        others = [row for row in rows if run.labels[row] not in (name, "negative")]
        wins = [
            float(run.probabilities[a, column] > run.probabilities[b, column])
            for a in ours
            for b in others
        ]
        values.append(float(np.mean(wins)))
    return float(np.mean(values))


def test_auroc_on_a_source_is_the_mean_over_folds(tables: Tables) -> None:
    runs = [each.rows for each in tables.on(tables.variants[1], "film")]
    expected = np.mean([naive(run, list(range(len(run.labels)))) for run in runs])
    found = tables.aurocs(tables.variants[1], "film")
    assert found["mean"].value == pytest.approx(expected)
    low, high = found["mean"].ci95 or (1, 0)
    assert low <= found["mean"].value <= high
    assert set(found) == {"round", "spiky", "mean"}


def test_a_difference_is_taken_on_the_rows_that_both_have_tested(tables: Tables) -> None:
    """One run was tested on all rows of a source that it never saw, the other on a fold of it."""
    everything, film = tables.variants[1], tables.variants[2]
    expected = []
    for one, other in zip(tables.on(film, "cesm"), tables.on(everything, "cesm"), strict=True):
        common = [one.rows.hashes.index(each) for each in other.rows.hashes]
        expected.append(
            naive(other.rows, list(range(len(other.rows.labels)))) - naive(one.rows, common)
        )
    found = tables.differences(film, everything, "cesm")["mean"]
    assert found.difference == pytest.approx(np.mean(expected))
    assert found.ci95 is not None and found.ci95[0] < found.ci95[1]


def test_common_rows_are_the_same_images(tables: Tables) -> None:
    one = tables.on(tables.variants[2], "cesm")[1].rows
    other = tables.on(tables.variants[1], "cesm")[1].rows
    ours, theirs = common_rows(one, other, ["round", "spiky"])
    assert [one.hashes[row] for row in ours] == [other.hashes[row] for row in theirs]
    assert len(ours) == sum(label != "negative" for label in other.labels)
    twice = replace(other, hashes=("same",) * len(other.hashes))
    again = common_rows(twice, twice, ["round", "spiky"])
    assert again[0] == again[1] and len(set(again[0])) == len(ours)


def test_models_that_do_not_know_the_negatives_are_compared_by_margins(tables: Tables) -> None:
    three = tables.on(tables.variants[1], "film")
    two = [measured(i, range(0, 40), "ours", 1.0, CLASSES[:2]) for i in (0, 1)]
    variants = [*tables.variants[:2], Variant(name="ours-cmmd", preset="x", sources=["cmmd"])]
    relabelled = [
        OnSource(replace(each.rows, labels=three[i].rows.labels, hashes=three[i].rows.hashes), {})
        for i, each in enumerate(two)
    ]
    found = {**tables.found, "ours-cmmd": {"film": relabelled, "cesm": relabelled}}
    both = Tables(variants, ["film"], found).differences(variants[2], variants[1], "film")
    assert both["mean"].difference is not None and "negative" not in both


def test_the_tables_say_what_was_measured(tables: Tables) -> None:
    text = tables.markdown()
    assert "| all | ours-all |" in text and "| film | ours-film |" in text
    assert "| all | film | ours-all – vgg16-all |" in text  # systems of one training
    assert "| film | cesm | ours-all – ours-film |" in text  # trainings of one system
    assert (
        "| all | film | vgg16-all, Grad-CAM | .500 (2.5×) | .600 (3.0×) | .400 (4.0×) | .200 |"
        in text
    )
    assert "| all | cesm | ours-all | spiky | .100 | .500 (5.0×) | .250 (2.5×) |" in text
    assert "vgg16-all |" not in text.split("## Margin precision by level")[1].split("##")[0]
    header = tables.csv().splitlines()[0]
    assert header == "variant,trained on,tested on,figure,value,low,high"
    assert "ours-film,film,cesm,AUROC mean," in tables.csv()


def test_a_confusion_matrix_has_the_rows_of_all_folds(tables: Tables) -> None:
    runs = [each.rows for each in tables.on(tables.variants[0], "film")]
    labels = [label for run in runs for label in run.labels]
    predicted = [CLASSES[i] for run in runs for i in run.probabilities.argmax(1)]
    rows = [p for label, p in zip(labels, predicted, strict=True) if label == "spiky"]
    shares = [f"{rows.count(name) / len(rows):.3f}".lstrip("0") for name in CLASSES]
    assert (
        f"| all | film | vgg16-all | spiky | {len(rows)} | {' | '.join(shares)} |"
        in tables.markdown()
    )


def manifest(rows: list[tuple[str, str, str]]) -> Manifest:
    samples = tuple(
        Sample(
            number, f"{number}.png", Path(f"{number}.png"), label, split, extra={"source": source}
        )
        for number, (label, split, source) in enumerate(rows)
    )
    return Manifest(Path("m.csv"), samples, ("image", "label", "split", "source"))


def test_the_control_is_1_where_the_source_tells_the_class_and_a_half_where_it_does_not() -> None:
    exactly = manifest(
        [
            (label, split, source)
            for split in ("train", "test")
            for label, source in (("round", "a"), ("spiky", "b"), ("negative", "c"))
            for _ in range(4)
        ]
    )
    found = control_aurocs(exactly, "source", CLASSES, "negative")
    assert found == {"mean": 1.0, "round": 1.0, "spiky": 1.0, "negative": 1.0}
    nothing = manifest(
        [(name, split, s) for split in ("train", "test") for name in CLASSES for s in "abc"]
    )
    found = control_aurocs(nothing, "source", CLASSES, "negative")
    assert found == {"mean": 0.5, "round": 0.5, "spiky": 0.5, "negative": 0.5}


def test_the_control_sees_negatives_of_one_source_with_lesions_of_another() -> None:
    """Margins are alike in both sources, so they are not told; the negatives are, exactly."""
    rows = [
        (label, split, source)
        for split in ("train", "test")
        for label, source in (("round", "a"), ("spiky", "a"), ("negative", "b"))
        for _ in range(3)
    ]
    found = control_aurocs(manifest(rows), "source", CLASSES, "negative")
    assert found == {"mean": 0.5, "round": 0.5, "spiky": 0.5, "negative": 1.0}
    text = render_control([manifest(rows)], ["source", "absent"], CLASSES, "negative")
    assert "| source | .500 | .500 | .500 | 1.000 |" in text and "absent" not in text


def test_the_control_is_asked_on_rows_that_it_did_not_learn_from() -> None:
    """In training the source tells the class, among the test rows the opposite."""
    rows = [("round", "train", "a"), ("spiky", "train", "b"), ("round", "test", "b")]
    found = control_aurocs(manifest([*rows, ("spiky", "test", "a")]), "source", CLASSES, "negative")
    assert found is not None and found["mean"] == 0.0
    positive = np.array([True, False])
    assert auroc(np.array([0.0, 1.0]), positive) == 0.0
