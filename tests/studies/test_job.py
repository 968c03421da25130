"""The data of a study's runs."""

import csv
from pathlib import Path

import pytest

from protopyramid.data.manifest import patient_folds, read_manifest, shared_patients
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run, model_digest
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.studies.job import Job, manifest_of, prepare_data, reuse_run, without_labels
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
    found = prepare_data(study(), tmp_path, study().replicates[0], phantom_manifest)
    assert found == phantom_manifest
    first = study().replicates[0]
    held = read_manifest(prepare_data(study(holdout=0.3), tmp_path, first, phantom_manifest))
    before = [sample.split for sample in read_manifest(phantom_manifest).samples]
    assert [sample.split for sample in held.samples] == before


def test_a_manifest_without_some_labels_is_written_in_the_study_not_beside_the_data(
    phantom_manifest, tmp_path
):
    chosen = study(variants=[{"name": "a", "preset": "vgg16", "without": ["indistinct"]}])
    job = Job(
        chosen, tmp_path, tmp_path, chosen.variants[0], chosen.replicates[0], phantom_manifest
    )
    beside = sorted(phantom_manifest.parent.iterdir())
    path = manifest_of(job)
    assert path == tmp_path / "seed-0/a.csv"
    labels = {sample.label for sample in read_manifest(path).samples}
    assert labels == {sample.label for sample in read_manifest(phantom_manifest).samples} - {
        "indistinct"
    }
    assert sorted(phantom_manifest.parent.iterdir()) == beside


def test_patients_are_held_out_the_same_ones_for_every_seed(phantom_manifest, tmp_path):
    data = without_test_rows(phantom_manifest, phantom_manifest.with_name("train-only.csv"))
    try:
        chosen = study(holdout=0.3)
        first, second = (
            prepare_data(chosen, tmp_path, each, data) for each in chosen.replicates[:2]
        )
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
        with pytest.raises(UserError, match="from a different dataset or split"):
            prepare_data(study(holdout=0.5), tmp_path, chosen.replicates[0], data)
    finally:
        data.unlink()


def test_every_patient_is_a_test_patient_of_one_fold(phantom_manifest, tmp_path):
    chosen = study(folds=3, seeds=[0, 1, 2, 4])
    rows = read_manifest(phantom_manifest).samples
    expected = sorted(sample.image.resolve() for sample in rows if sample.split != "test")
    tested = []
    for seed, each in enumerate(chosen.replicates[:3]):
        path = prepare_data(chosen, tmp_path, each, phantom_manifest)
        assert path == prepare_data(chosen, tmp_path, each, phantom_manifest)
        assert path == tmp_path / f"seed-{seed}/manifest.csv"
        fold = read_manifest(path)
        assert not shared_patients(fold.samples)
        assert sorted(sample.image.resolve() for sample in fold.samples) == expected
        tested += [sample.image.resolve() for sample in fold.split("test")]
    assert sorted(tested) == expected
    again = read_manifest(prepare_data(chosen, tmp_path, chosen.replicates[3], phantom_manifest))
    second = read_manifest(tmp_path / "seed-1/manifest.csv").split("test")
    assert [sample.name for sample in again.split("test")] == [sample.name for sample in second]
    with pytest.raises(UserError, match="from a different dataset or split"):
        other = study(folds=4)
        prepare_data(other, tmp_path, other.replicates[0], phantom_manifest)


def test_folds_hold_out_the_rows_that_they_always_did(phantom_manifest, tmp_path):
    """By dealing 1, seed S tests fold S mod K of the one partition of seed 0."""
    chosen = study(folds=3, seeds=[0, 1, 5])
    train = [each for each in read_manifest(phantom_manifest).samples if each.split != "test"]
    folds = patient_folds(train, 3, 0)
    for each, fold in zip(chosen.replicates, (0, 1, 2), strict=True):
        path = prepare_data(chosen, tmp_path, each, phantom_manifest)
        expected = [
            sample.image.name for sample, part in zip(train, folds, strict=True) if part == fold
        ]
        assert [sample.image.name for sample in read_manifest(path).split("test")] == expected


def test_by_dealing_2_folds_are_those_of_crossval(phantom_manifest, tmp_path):
    chosen = study(folds=2, seeds=[0, 3], dealing=2)
    assert [(each.seed, each.fold) for each in chosen.replicates] == [
        (0, 0),
        (0, 1),
        (3, 0),
        (3, 1),
    ]
    train = [each for each in read_manifest(phantom_manifest).samples if each.split != "test"]
    for each in chosen.replicates:
        path = prepare_data(chosen, tmp_path, each, phantom_manifest)
        assert path == tmp_path / f"seed-{each.seed}/fold-{each.fold}/manifest.csv"
        # crossval deals the same rows by the seed of the run
        folds = patient_folds(train, 2, each.seed)
        expected = [
            sample.image.name
            for sample, part in zip(train, folds, strict=True)
            if part == each.fold
        ]
        assert [sample.image.name for sample in read_manifest(path).split("test")] == expected


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
    reuse_run(source, target, settings)
    taken = load_run(target.path)
    assert (taken.config.model.tta, taken.model.tta) == (4, 4)
    assert taken.prototypes == source.prototypes
    assert model_digest(taken) != model_digest(source)
    evaluate_run(taken, phantom_manifest, "test")
    before = (target / "evaluation/test.json").read_bytes()
    reuse_run(source, target, settings)
    assert (target / "evaluation/test.json").read_bytes() == before
    once = evaluate_run(source, phantom_manifest, "test")
    four = target.read_json("evaluation/test.json")
    assert (four["model"], four["auroc"]["mean"]) != (once.model, once.auroc.mean)
