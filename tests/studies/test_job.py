"""The data of a study's runs."""

import csv
from pathlib import Path

import pytest

from protopyramid.data.manifest import read_manifest, shared_patients
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run, model_digest
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.studies.job import prepare_data, take_run, without_labels
from protopyramid.studies.plan import Study


def study(**settings) -> Study:
    variants = [{"name": "a", "preset": "vgg16"}]
    return Study.model_validate(
        {"title": "T", "data": "manifest", "variants": variants, **settings}
    )


def without_test_rows(manifest: Path, target: Path) -> Path:
    """The same images, all of them train rows."""
    lines = manifest.read_text().replace(",test,", ",train,").replace(",validation,", ",train,")
    target.write_text(lines)
    return target


def test_a_dataset_with_test_rows_is_taken_as_it_is(phantom_manifest, tmp_path):
    found = prepare_data(study(), tmp_path, 0, phantom_manifest)
    assert found == phantom_manifest
    held = read_manifest(prepare_data(study(holdout=0.3), tmp_path, 0, phantom_manifest))
    before = [sample.split for sample in read_manifest(phantom_manifest).samples]
    assert [sample.split for sample in held.samples] == before


def test_patients_are_held_out_the_same_ones_for_every_seed(phantom_manifest, tmp_path):
    data = without_test_rows(phantom_manifest, phantom_manifest.with_name("train-only.csv"))
    try:
        chosen = study(holdout=0.3)
        first, second = (prepare_data(chosen, tmp_path, seed, data) for seed in (0, 1))
        held = read_manifest(first)
        assert first == second == tmp_path / "manifest.csv"
        assert not shared_patients(held.samples)
        share = len(held.split("test")) / len(held.samples)
        assert 0.2 < share < 0.4
        old = {sample.image.resolve(): sample for sample in read_manifest(data).samples}
        for sample in held.samples:
            same = old[sample.image.resolve()]
            assert (sample.label, sample.box) == (same.label, same.box)
            assert sample.mask.resolve() == same.mask.resolve()
        with pytest.raises(UserError, match="of other data"):
            prepare_data(study(holdout=0.5), tmp_path, 0, data)
    finally:
        data.unlink()


def test_every_patient_is_a_test_patient_of_one_fold(phantom_manifest, tmp_path):
    chosen = study(folds=3)
    rows = read_manifest(phantom_manifest).samples
    expected = sorted(sample.image.resolve() for sample in rows if sample.split != "test")
    tested = []
    for seed in range(3):
        path = prepare_data(chosen, tmp_path, seed, phantom_manifest)
        assert path == prepare_data(chosen, tmp_path, seed, phantom_manifest)
        assert path == tmp_path / f"seed-{seed}/manifest.csv"
        fold = read_manifest(path)
        assert not shared_patients(fold.samples)
        assert sorted(sample.image.resolve() for sample in fold.samples) == expected
        tested += [sample.image.resolve() for sample in fold.split("test")]
    assert sorted(tested) == expected
    again = read_manifest(prepare_data(chosen, tmp_path, 4, phantom_manifest)).split("test")
    second = read_manifest(tmp_path / "seed-1/manifest.csv").split("test")
    assert [sample.name for sample in again] == [sample.name for sample in second]
    with pytest.raises(UserError, match="of other data"):
        prepare_data(study(folds=4), tmp_path, 0, phantom_manifest)


def test_rows_of_a_label_are_left_out_and_the_others_stay_as_they_are(phantom_manifest, tmp_path):
    target = phantom_manifest.with_name("three.csv")
    try:
        without_labels(phantom_manifest, ["negative"], target)
        kept = read_manifest(target).samples
        with phantom_manifest.open(newline="") as file:
            expected = [row for row in csv.DictReader(file) if row["label"] != "negative"]
    finally:
        target.unlink()
    assert [sample.name for sample in kept] == [row["image"] for row in expected]
    assert {sample.label for sample in kept} == {"circumscribed", "indistinct", "spiculated"}


def test_a_run_is_reused_with_other_tta_and_measured_again(new_run, phantom_manifest, tmp_path):
    source = new_run("fpn-iaia-bl")
    settings = source.config.model_copy(
        update={"model": source.config.model.model_copy(update={"tta": 4})}
    )
    target = RunFolder(tmp_path / "taken")
    take_run(source, target, settings)
    taken = load_run(target.path)
    assert (taken.config.model.tta, taken.model.tta) == (4, 4)
    assert taken.prototypes == source.prototypes
    assert model_digest(taken) != model_digest(source)
    evaluate_run(taken, phantom_manifest, "test")
    before = (target / "evaluation/test.json").read_bytes()
    take_run(source, target, settings)
    assert (target / "evaluation/test.json").read_bytes() == before
    once = evaluate_run(source, phantom_manifest, "test")
    four = target.read_json("evaluation/test.json")
    assert (four["model"], four["auroc"]["mean"]) != (once["model"], once["auroc"]["mean"])
