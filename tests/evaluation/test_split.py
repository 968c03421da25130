"""Which rows are evaluated, and that those of training are refused."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from PIL import Image

from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.errors import UserError
from protopyramid.evaluation.split import evaluated_split, lesions
from protopyramid.runs.provenance import find_manifest


def rewritten(manifest: Path, folder: Path, change, name: str = "manifest.csv") -> Path:
    """A copy of a dataset whose rows went through `change(row) -> row or None`."""
    shutil.copytree(manifest.parent, folder, dirs_exist_ok=True)
    with manifest.open(newline="") as file:
        rows = [row for row in map(change, csv.DictReader(file)) if row is not None]
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder / name


def test_the_manifest_of_training_is_found_relative_to_the_run(new_run, phantom_manifest) -> None:
    run = new_run()
    assert not Path(run.folder.read_json("data.json")["manifest_path"]).is_absolute()
    assert find_manifest(run, None) == phantom_manifest.resolve()
    chosen = evaluated_split(run, None, "test")
    assert [each.name for each in chosen.samples] == [
        each.name for each in read_manifest(phantom_manifest).split("test")
    ]
    assert not chosen.leaked


def test_a_manifest_that_is_gone_is_named(new_run, phantom_manifest, tmp_path: Path) -> None:
    moved = rewritten(phantom_manifest, tmp_path / "data", lambda row: row)
    run = new_run(table_path=moved)
    moved.unlink()
    with pytest.raises(UserError, match=r"manifest\.csv.*no longer exists.*--data"):
        evaluated_split(run, None, "test")


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_training_image_under_another_name_and_format_is_refused(
    part: str, new_run, phantom_manifest, tmp_path: Path
) -> None:
    run = new_run()
    source = read_manifest(phantom_manifest).split(part)[0]
    folder = tmp_path / "other"
    manifest = rewritten(
        phantom_manifest, folder, lambda row: row if row["split"] == "test" else None
    )
    Image.open(source.image).save(folder / "copy.tif")
    with manifest.open("a") as file:
        file.write(f"copy.tif,{source.label},test,,,,,,\n")
    with pytest.raises(UserError, match=r"1 of the \d+ images .* 'copy.tif' .*--force"):
        evaluated_split(run, manifest, "test")
    forced = evaluated_split(run, manifest, "test", force=True)
    assert forced.leaked


def test_validation_may_be_evaluated_but_train_not(new_run) -> None:
    run = new_run()
    chosen = evaluated_split(run, None, "validation")
    assert not chosen.leaked
    assert "selected on this split" in " ".join(chosen.warnings)
    with pytest.raises(UserError, match="used in training"):
        evaluated_split(run, None, "train")


def test_validation_that_training_held_out_is_those_rows(
    new_run, phantom_manifest, tmp_path: Path
) -> None:
    def without_validation(row: dict[str, str]) -> dict[str, str]:
        return {**row, "split": "train" if row["split"] == "validation" else row["split"]}

    manifest = rewritten(phantom_manifest, tmp_path / "data", without_validation)
    run = new_run(table_path=manifest)
    splits = run.folder.read_json("data.json")["splits"]
    chosen = evaluated_split(run, None, "validation")
    assert {each.name for each in chosen.samples} == set(splits["validation"])
    forced = evaluated_split(run, None, "train", force=True)
    assert {each.name for each in forced.samples} == set(splits["train"])


def test_a_patient_on_both_sides_is_warned_about(new_run, phantom_manifest, tmp_path: Path) -> None:
    patient = read_manifest(phantom_manifest).split("train")[0].patient_id
    manifest = rewritten(
        phantom_manifest,
        tmp_path / "data",
        lambda row: {**row, "patient_id": patient} if row["split"] == "test" else row,
    )
    run = new_run(table_path=manifest)
    (warning,) = evaluated_split(run, None, "test").warnings
    assert repr(patient) in warning and "also in train" in warning


def test_unknown_labels_splits_and_empty_splits_are_refused(
    new_run, phantom_manifest, tmp_path: Path
) -> None:
    run = new_run()
    with pytest.raises(UserError, match="no split"):
        evaluated_split(run, None, "tset")
    other = rewritten(
        phantom_manifest,
        tmp_path / "a",
        lambda row: {**row, "label": "cyst"} if row["split"] == "test" else row,
    )
    with pytest.raises(UserError, match=r"'cyst' in row \d+; its classes are circumscribed"):
        evaluated_split(run, other, "test")
    none = rewritten(
        phantom_manifest, tmp_path / "b", lambda row: row if row["split"] != "test" else None
    )
    with pytest.raises(UserError, match="no row has split test"):
        evaluated_split(run, none, "test")


def test_lesions_are_told_apart_by_the_columns_there_are() -> None:
    def sample(patient: str, **extra: str) -> Sample:
        return Sample(1, "a.png", Path("a.png"), "x", "test", patient_id=patient, extra=extra)

    assert lesions([sample("1"), sample("2")]) is None
    assert lesions([sample("1", laterality="LEFT")]) is None
    by_id = lesions([sample("1", lesion_id="7"), sample("1", lesion_id="8")])
    assert by_id is not None and len(set(by_id)) == 2
    views = [
        sample("1", laterality="LEFT", abnormality_id="1", view="CC"),
        sample("1", laterality="LEFT", abnormality_id="1", view="MLO"),
        sample("1", laterality="RIGHT", abnormality_id="1", view="CC"),
    ]
    assert len(set(lesions(views) or [])) == 2
