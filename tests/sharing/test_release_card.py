"""The card of a model to publish: figures out of fold by class and source."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.sharing.release_card import (
    ALL,
    CardWords,
    SourceWords,
    of_crossval,
    of_run,
    out_of_fold,
    release_card,
    together,
)
from protopyramid.studies.by_source import measure_by_source
from protopyramid.studies.kept import is_kept, keep, kept_predictions


@pytest.fixture
def predicted(run, manifest, tmp_path: Path) -> tuple[Path, Path, list[list[object]]]:
    """A manifest of two sources, a folder with predictions of it, and their rows."""
    rng = np.random.default_rng(0)
    classes = run.config.data.classes
    table, lines = (
        ["image,label,split,patient_id,source"],
        ["image,label,patient_id," + ",".join(classes)],
    )
    rows: list[list[object]] = []
    for number, sample in enumerate(manifest.samples):
        source = "film" if number % 2 else "cesm"
        chances = rng.dirichlet(np.ones(len(classes)))
        table.append(f"{sample.image},{sample.label},train,{sample.patient_id},{source}")
        values = ",".join(f"{each:.6f}" for each in chances)
        lines.append(f"{sample.image},{sample.label},{sample.patient_id},{values}")
        rows.append([source, sample.label, *np.round(chances, 6)])
    (tmp_path / "joined.csv").write_text("\n".join(table) + "\n")
    (tmp_path / "folds").mkdir()
    (tmp_path / "folds" / "predictions.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "joined.csv", tmp_path / "folds", rows


def test_figures_are_those_of_scikit_learn_among_the_lesions_of_a_source(run, predicted) -> None:
    manifest, folds, rows = predicted
    found = out_of_fold(run, of_crossval(run, manifest, folds))
    assert list(found) == ["cesm", "film", ALL]
    for source, result in found.items():
        own = [r for r in rows if source in (r[0], ALL) and r[1] != "negative"]
        for number, name in enumerate(run.config.data.classes):
            if name != "negative":
                truth = [r[1] == name for r in own]
                expected = roc_auc_score(truth, [r[2 + number] for r in own])
                assert result.counts[name] == sum(truth)
                assert result.auroc.per_class[name] == pytest.approx(expected, abs=1e-6)


def test_the_card_has_every_source_and_its_words(run, predicted) -> None:
    manifest, folds, _ = predicted
    sources = {n: SourceWords(f"set {n}", "CC BY 4.0", "a note") for n in ("film", "cesm")}
    words = CardWords("m", "2", "what", "MIT", ["use"], ["limit"], ["ultrasound"], sources)
    predictions = of_crossval(run, manifest, folds)
    text = release_card(run, words, manifest, predictions)
    for part in ("# m", "Version 2", "set film", "CC BY 4.0", "limit", "ultrasound", "out of fold"):
        assert part in text
    assert "so far" not in text
    lesions = [each for each in predictions if each.label != run.config.data.negative_class]
    fewer = [each for each in predictions if each is not lesions[0]]
    counted = f"Of {len(lesions)} lesions, {len(lesions) - 1} were tested so far"
    assert counted in release_card(run, words, manifest, fewer)
    missing = CardWords("m", "2", "what", "MIT", sources={"film": sources["film"]})
    with pytest.raises(UserError, match=r"sources\.cesm"):
        release_card(run, missing, manifest, predictions)


def test_the_folds_of_a_study_give_their_held_out_lesions_by_source(
    run, manifest, tmp_path: Path
) -> None:
    shutil.copytree(run.folder.path, tmp_path / "fold")
    fold = load_run(tmp_path / "fold")
    held_out = list(manifest.split("test"))
    lines = [
        f"{each.image},{each.label},test,{each.patient_id},{'film' if number % 2 else 'cesm'}"
        for number, each in enumerate(held_out)
    ]
    joined = tmp_path / "joined.csv"
    joined.write_text("\n".join(["image,label,split,patient_id,source", *lines]) + "\n")
    with pytest.raises(UserError, match="not measured source by source"):
        of_run(run, fold)
    measure_by_source(fold, joined)
    found = of_run(run, fold)
    assert len(found) == len(held_out)
    records = fold.predict([each.image for each in held_out])
    expected = sorted(max(record["probabilities"].values()) for record in records)
    assert sorted(e.probabilities.max() for e in found) == pytest.approx(expected, abs=1e-4)
    assert sorted(e.label for e in found) == sorted(each.label for each in held_out)
    assert {each.source for each in found} == {"film", "cesm"}
    with pytest.raises(UserError, match="give each fold once"):
        together({fold.folder.path: found, tmp_path / "again": found})


def test_kept_results_of_a_fold_give_the_same_lesions(run, manifest, tmp_path: Path) -> None:
    shutil.copytree(run.folder.path, tmp_path / "fold")
    fold = load_run(tmp_path / "fold")
    lines = [f"{e.image},{e.label},test,{e.patient_id},film" for e in manifest.split("test")]
    joined = tmp_path / "joined.csv"
    joined.write_text("\n".join(["image,label,split,patient_id,source", *lines]) + "\n")
    measure_by_source(fold, joined)
    keep(fold.folder, RunFolder(tmp_path / "kept"), ["film"])
    assert is_kept(tmp_path / "kept") and not is_kept(tmp_path / "fold")
    expected, found = of_run(run, fold), kept_predictions(tmp_path / "kept", run)
    facts = [[(e.image, e.label, e.patient, e.source) for e in each] for each in (expected, found)]
    assert facts[0] == facts[1] and len(found) == len(lines)
    for before, after in zip(expected, found, strict=True):
        assert after.probabilities == pytest.approx(before.probabilities, rel=1e-5)


def test_kept_results_of_another_recipe_are_refused(run, manifest, tmp_path: Path) -> None:
    settings = run.config.model_dump(mode="json")
    settings["train"]["seed"] += 1
    kept = RunFolder(tmp_path / "kept")
    kept.write_json("settings.json", settings)
    with pytest.raises(UserError, match="not measured"):  # another seed is the same recipe
        kept_predictions(tmp_path / "kept", run)
    settings["loss"]["contrast"] += 1
    kept.write_json("settings.json", settings)
    with pytest.raises(UserError, match="of the same recipe"):
        kept_predictions(tmp_path / "kept", run)


def test_the_words_of_the_shipped_card_are_complete() -> None:
    from protopyramid.sharing.release_card import read_words

    words = read_words(Path(__file__).parents[2] / "studies/margins-card.toml")
    assert words.name == "margins"
    assert set(words.sources) == {"film", "cmmd", "cesm"}
    assert words.limits and words.untested and words.use
