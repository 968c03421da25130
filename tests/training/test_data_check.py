"""Data that cannot be trained on is refused before any work, in words."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path

import pytest

from protopyramid.config import parse_assignments
from protopyramid.errors import UserError
from protopyramid.training.data_check import training_manifest
from protopyramid.training.engine import train_run

from ..harness import copy_manifest, tiny


def without_annotation(row: str) -> str:
    """image,label,split,mask,patient_id,box without mask and box."""
    image, label, split, _, patient, *_ = row.split(",")
    return f"{image},{label},{split},,{patient},,,,"


def test_good_data_is_taken_in_silence(phantoms: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manifest = training_manifest(phantoms, tiny())
    assert [len(manifest.split(name)) for name in ("train", "validation", "test")] == [24, 8, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda row: "" if ",indistinct,train," in row else row,
            "no training image of class indistinct; add some, or leave the class out: --set",
        ),
        (lambda row: row if ",train," not in row else "", "no row has split 'train'"),
        (
            lambda row: "" if ",spiculated,train," in row and "0004" not in row else row,
            "class spiculated has 1 training images but 2 prototypes on one level",
        ),
        (lambda row: row.replace(",negative,", ",normal,"), "'normal' is not one of the classes"),
    ],
)
def test_data_that_does_not_suffice_is_refused(
    phantoms: Path, tmp_path: Path, change, message: str
) -> None:
    manifest = copy_manifest(phantoms, tmp_path / "data", change)
    with pytest.raises(UserError, match=message):
        train_run(tiny(), manifest, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_without_annotations_is_refused_where_prototypes_need_them(
    phantoms: Path, tmp_path: Path
) -> None:
    """Negatives, which have nothing to annotate, are not."""

    def bare(row: str) -> str:
        return without_annotation(row) if ",spiculated,train," in row else row

    manifest = copy_manifest(phantoms, tmp_path / "data", bare)
    message = r"class spiculated has no annotated training images.*projection\.annotated_only=false"
    with pytest.raises(UserError, match=message):
        training_manifest(manifest, tiny("iaia-bl"))
    training_manifest(manifest, tiny("iaia-bl", projection__annotated_only=False))
    training_manifest(phantoms, tiny("iaia-bl"))
    few = copy_manifest(
        phantoms, tmp_path / "few", lambda row: row if "patient0001" in row else bare(row)
    )
    with pytest.raises(UserError, match="annotated training images but 5 prototypes"):
        training_manifest(few, tiny("iaia-bl", projection__unique="image"))


def test_other_labels_are_one_line_whose_advice_works(phantoms: Path, tmp_path: Path) -> None:
    names = {"circumscribed": "smooth", "indistinct": "o'blurred", "spiculated": "star"}

    def renamed(row: str) -> str:
        image, label, *rest = row.split(",")
        return "" if label == "negative" else ",".join([image, names[label], *rest])

    manifest = copy_manifest(phantoms, tmp_path / "data", renamed)
    with pytest.raises(UserError) as caught:
        training_manifest(manifest, tiny())
    message = str(caught.value)
    assert "and 29 more rows" in message and message.count("not one of the classes") == 1
    words = shlex.split(message.partition("as they are: ")[2])
    assert words[::2] == ["--set", "--set"]
    followed = tiny(**parse_assignments(words[1::2]))
    assert sorted(followed.data.classes) == sorted(names.values())
    assert followed.data.negative_class == ""
    assert len(training_manifest(manifest, followed).samples) == 30


def test_the_negative_class_stays_where_the_labels_have_it(phantoms: Path, tmp_path: Path) -> None:
    manifest = copy_manifest(
        phantoms, tmp_path / "data", lambda row: row.replace(",indistinct,", ",other,")
    )
    with pytest.raises(UserError, match=r'"other"') as caught:
        training_manifest(manifest, tiny())
    assert "data.negative_class" not in str(caught.value)


def test_patches_may_share_an_image_where_the_config_says_so(
    phantoms: Path, tmp_path: Path
) -> None:
    manifest = copy_manifest(
        phantoms,
        tmp_path / "data",
        lambda row: "" if ",spiculated,train," in row and "0004" not in row else row,
    )
    training_manifest(manifest, tiny(projection__unique="patch"))


def test_a_fine_loss_without_masks_is_warned_about(phantoms: Path, tmp_path: Path) -> None:
    manifest = copy_manifest(phantoms, tmp_path / "data", without_annotation)
    with pytest.warns(UserWarning, match="the fine loss has no effect; add masks or set"):
        training_manifest(manifest, tiny())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training_manifest(manifest, tiny(loss__fine__weight=0.0))
        training_manifest(manifest, tiny("vgg16"))


def test_lesion_boxes_are_annotations_too(phantoms: Path, tmp_path: Path) -> None:
    def only_box(row: str) -> str:
        fields = row.split(",")
        fields[3] = ""
        return ",".join(fields)

    manifest = copy_manifest(phantoms, tmp_path / "data", only_box)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training_manifest(manifest, tiny())


def test_a_class_without_validation_images_is_warned_about(phantoms: Path, tmp_path: Path) -> None:
    manifest = copy_manifest(
        phantoms, tmp_path / "data", lambda row: "" if ",indistinct,validation," in row else row
    )
    with pytest.warns(UserWarning, match="no validation image of class indistinct"):
        training_manifest(manifest, tiny())


def test_lesions_without_a_place_are_told_where_lesions_are_cut_out(
    phantoms: Path, tmp_path: Path
) -> None:
    rows = phantoms.read_text().splitlines()
    first = next(n for n, row in enumerate(rows) if ",spiculated,train," in row)
    rows[first] = without_annotation(rows[first])
    folder = phantoms.parent
    (folder / "part.csv").write_text("\n".join(rows) + "\n")
    with pytest.warns(
        UserWarning, match=rf"1 of 30 lesions .*first row {first + 1}\), so the model sees"
    ):
        training_manifest(folder / "part.csv", tiny(data__crop="lesion"))
    (folder / "part.csv").unlink()


def test_balancing_by_source_needs_the_sources(phantoms: Path, tmp_path: Path) -> None:
    balanced = tiny(data__balance="source-class")
    with pytest.raises(
        UserError, match=r"row \d+ and 23 more rows: no source, but data.balance is"
    ):
        training_manifest(phantoms, balanced)

    def with_source(row: str) -> str:
        return f"{row},source" if row.startswith("image,") else f"{row},film"

    header, *rows = copy_manifest(phantoms, tmp_path / "data", str).read_text().splitlines()
    path = tmp_path / "data/several.csv"
    path.write_text("\n".join(with_source(row) for row in (header, *rows)) + "\n")
    assert {sample.source for sample in training_manifest(path, balanced).samples} == {"film"}
