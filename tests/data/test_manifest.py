"""Manifests: what is read, what is refused in which words, and how patients are split."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.data.manifest import (
    Manifest,
    Sample,
    patient_folds,
    read_manifest,
    shared_patients,
    with_validation,
)
from protopyramid.errors import UserError

Write = Callable[..., Path]
HEADER = "image,label,split"
BOXED = HEADER + ",lesion_x0,lesion_y0,lesion_x1,lesion_y1"


def samples_of(table: list[tuple[str, str]], split: str = "train") -> list[Sample]:
    """Samples of (patient, label) pairs."""
    return [
        Sample(row, f"{row}.png", Path(f"{row}.png"), label, split, patient_id=patient)
        for row, (patient, label) in enumerate(table, 2)
    ]


def manifest_of(table: list[tuple[str, str]]) -> Manifest:
    return Manifest(Path("m.csv"), tuple(samples_of(table)), ("image", "label", "split"))


def error_of(path: Path, classes: list[str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read_manifest(path, classes)
    return str(caught.value)


def test_every_column_is_read(write_manifest: Write, tmp_path: Path) -> None:
    path = write_manifest(
        BOXED + ",mask,patient_id,view\n"
        "a.png,round,train,1,2,3.5,4,b.png,P1,CC\n"
        "c.png,oval,test,,,,,,,\n"
    )
    first, second = read_manifest(path).samples
    assert first == Sample(
        row=2,
        name="a.png",
        image=tmp_path / "a.png",
        label="round",
        split="train",
        mask=tmp_path / "b.png",
        patient_id="P1",
        box=(1, 2, 3.5, 4),
        extra={"view": "CC"},
    )
    assert (second.row, second.mask, second.box, second.patient_id) == (3, None, None, "")
    assert second.extra == {"view": ""}


def test_labels_come_in_order_of_appearance_and_splits_by_name(write_manifest: Write) -> None:
    path = write_manifest(HEADER + "\na.png,z,test\nb.png,a,train\nc.png,z,train\n")
    manifest = read_manifest(path)
    assert manifest.labels() == ["z", "a"]
    assert [sample.name for sample in manifest.split("train")] == ["b.png", "c.png"]
    assert manifest.split("validation") == ()
    with pytest.raises(UserError, match="train, validation, test"):
        manifest.split("val")


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfimage,label,split\na.png,x,train\n",
        b"image,label,split\r\na.png,x,train\r\n",
        b"image,label,split\ra.png,x,train\r",
        b"\n image , label ,split\n\n  a.png , x,train \n,,\n\n",
        b'"image","label","split"\n"a.png","x","train"',
    ],
    ids=["byte order mark", "CRLF", "CR", "blank lines and spaces", "quoted, no last newline"],
)
def test_spreadsheet_habits_are_understood(write_manifest: Write, text: bytes) -> None:
    (sample,) = read_manifest(write_manifest(text)).samples
    assert (sample.name, sample.label, sample.split) == ("a.png", "x", "train")


def test_rows_are_counted_in_lines_of_the_file_despite_quoted_newlines(
    write_manifest: Write,
) -> None:
    text = HEADER + ',note\na.png,x,train,"two\nlines"\n\nb.png,x,train,\n'
    manifest = read_manifest(write_manifest(text))
    assert [sample.row for sample in manifest.samples] == [2, 5]
    assert manifest.samples[0].extra["note"] == "two\nlines"


def test_backslashes_of_windows_are_folders(write_manifest: Write, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    path = write_manifest(HEADER + "\ndeep\\a.png,x,train\n", ("deep/a.png",))
    assert read_manifest(path).samples[0].name == "deep/a.png"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "empty"),
        (b"\n\n , \n", "empty"),
        (b"image,label\na.png,x\n", "no column 'split'"),
        (b"Image,label,split\na.png,x,train\n", "columns found: 'Image'"),
        (b"image;label;split\na.png;x;train\n", "separated by commas"),
        (b"image,label,split,label\na.png,x,train,y\n", "'label' occurs 2 times"),
        (b"image,label,split\n", "no rows"),
        (b"image,label,split\na.png,\xff,train\n", "UTF-8"),
        ("image,label,split\n".encode("utf-16"), "UTF-8"),
        (b"image,label,split\na.png,\0,train\n", "line 2 has a NUL byte"),
        (b'image,label,split\na.png,"x,train\n', "row 2 is not CSV"),
        (b"image,label,split\na.png,x\n", "row 2: has 2 fields but the header has 3"),
        (b"image,label,split\na.png,x,train,y\n", "row 2: has 4 fields"),
        (b"image,label,split\n,x,train\n", "row 2, image: is empty"),
        (b"image,label,split\na.png,,train\n", "row 2, label: is empty"),
        (b"image,label,split\na.png,x,val\n", "row 2, split: 'val' must be train, validation"),
        (b"image,label,split\nno.png,x,train\n", "row 2, image: no file 'no.png'"),
        (b"image,label,split,mask\na.png,x,train,no.png\n", "row 2, mask: no file 'no.png'"),
        (b"image,label,split\n" + b"n" * 5000 + b",x,train\n", "row 2, image: no file"),
        (b"image,label,split,lesion_x0\na.png,x,train,1\n", "add lesion_y0, lesion_x1, lesion_y1"),
    ],
)
def test_a_broken_manifest_is_refused_in_words(
    write_manifest: Write, text: bytes, said: str
) -> None:
    message = error_of(write_manifest(text))
    assert "manifest.csv" in message
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("box", "said"),
    [
        ("1,2,,4", "incomplete"),
        ("1,2,x,4", "must be numbers"),
        ('"1,5",2,3,4', "must be numbers"),
        ("1,2,nan,4", "not finite"),
        ("1,2,inf,4", "not finite"),
        ("3,2,1,4", "inverted"),
        ("1,2,1,4", "empty or inverted"),
        ("-5,-5,-1,4", "outside the image"),
    ],
)
def test_a_box_that_is_none_is_refused(write_manifest: Write, box: str, said: str) -> None:
    message = error_of(write_manifest(f"{BOXED}\na.png,x,train,{box}\n"))
    assert "row 2, lesion_x0 to lesion_y1" in message
    assert said in message


def test_all_problems_are_listed_at_once_up_to_twenty(write_manifest: Write) -> None:
    rows = "".join(f"{number}.png,,dev\n" for number in range(10))
    message = error_of(write_manifest(f"{HEADER}\n{rows}"))
    assert "30 problems" in message
    assert message.endswith("and 10 more")
    assert message.count("row ") == 20


def test_labels_outside_the_classes_are_problems_with_the_setting_to_change(
    write_manifest: Write,
) -> None:
    path = write_manifest(HEADER + "\na.png,round,train\nb.png,oval,train\nc.png,x,test\n")
    message = error_of(path, ["round", "x"])
    assert "row 3, label: 'oval' is not one of the classes round, x" in message
    assert """--set 'data.classes=["round", "oval", "x"]'""" in message
    assert len(read_manifest(path, ["oval", "round", "x"]).samples) == 3


def test_an_image_in_two_rows_is_refused_and_a_leak_is_called_one(write_manifest: Write) -> None:
    path = write_manifest(HEADER + "\na.png,x,train\na.png,x,train\n./a.png,x,test\n")
    message = error_of(path)
    assert "row 3, image: 'a.png' is on row 2 already" in message
    assert "row 4, image: './a.png' is in split train on row 2 and in split test here" in message


@pytest.mark.parametrize("name", ["no/such/manifest.csv", ".", "bad\0name.csv"])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"cannot read the manifest|no file can have the name"):
        read_manifest(f"{tmp_path}/{name}")


CSV_LIKE = st.lists(
    st.one_of(st.sampled_from([*BOXED.split(","), "a.png", "\n", ",", '"', "train"]), st.text()),
    max_size=40,
).map("".join)
AFTER_HEADER = CSV_LIKE.map(lambda text: f"{BOXED},mask\n{text}")
CONTENT = st.one_of(
    st.one_of(CSV_LIKE, AFTER_HEADER, st.text()).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(),
)


@settings(max_examples=300, deadline=None)
@given(CONTENT)
def test_any_content_gives_a_manifest_or_a_user_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.csv"
        path.write_bytes(content)
        (Path(folder) / "a.png").touch()
        try:
            manifest = read_manifest(path)
        except UserError as error:
            assert "\n" not in str(error).replace(str(path), "")
        else:
            assert manifest.samples


TABLES = st.lists(
    st.tuples(st.integers(0, 12).map(str), st.sampled_from("abc")), min_size=2, max_size=60
).filter(lambda table: len({patient for patient, _ in table}) > 1)


@settings(max_examples=100, deadline=None)
@given(TABLES, st.floats(0.05, 0.5), st.integers(0, 5))
def test_no_patient_is_ever_on_both_sides(
    table: list[tuple[str, str]], fraction: float, seed: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split = with_validation(manifest_of(table), fraction, seed)
    assert not shared_patients(split.samples)
    assert split.split("train")
    assert split.split("validation")
    assert [sample.name for sample in split.samples] == [s.name for s in manifest_of(table).samples]


def test_each_class_gives_its_share_to_validation_and_test_rows_are_never_touched() -> None:
    table = [(f"{label}{number // 2}", label) for label in "abc" for number in range(100)]
    kept = samples_of([("T", "a"), ("U", "b")], "test")
    manifest = Manifest(Path("m.csv"), (*samples_of(table), *kept), ())
    split = with_validation(manifest, 0.2, 0)
    assert Counter(s.label for s in split.split("validation")) == {"a": 20, "b": 20, "c": 20}
    assert split.split("test") == tuple(kept)


def test_the_held_out_part_depends_on_the_seed_and_not_on_the_order_of_rows() -> None:
    table = [(str(number), "ab"[number % 2]) for number in range(60)]
    manifest = manifest_of(table)
    backwards = Manifest(manifest.path, manifest.samples[::-1], ())

    def held_out(of: Manifest, seed: int) -> set[str]:
        return {sample.name for sample in with_validation(of, 0.3, seed).split("validation")}

    assert held_out(manifest, 1) == held_out(manifest, 1) == held_out(backwards, 1)
    assert held_out(manifest, 1) != held_out(manifest, 2)


def test_validation_rows_that_are_there_are_kept() -> None:
    manifest = Manifest(Path("m.csv"), tuple(samples_of([("1", "a")], "validation")), ())
    assert with_validation(manifest, 0.2, 0) is manifest


def test_a_class_of_few_patients_is_warned_about_and_still_on_both_sides() -> None:
    table = [(f"p{number}", "many") for number in range(20)]
    table += [("q", "few")] * 30 + [("r", "few")] * 10
    with pytest.warns(UserWarning, match=r"class 'few' has 2 training patient"):
        split = with_validation(manifest_of(table), 0.2, 0)
    assert {"many", "few"} == {sample.label for sample in split.split("validation")}
    assert {"many", "few"} == {sample.label for sample in split.split("train")}


def test_samples_without_a_patient_are_each_their_own() -> None:
    split = with_validation(manifest_of([("", "a")] * 50), 0.2, 0)
    assert len(split.split("validation")) == 10


def test_nothing_to_split_is_refused() -> None:
    with pytest.raises(UserError, match="one patient"):
        with_validation(manifest_of([("1", "a"), ("1", "b")]), 0.2, 0)
    with pytest.raises(UserError, match="no row has split train"):
        with_validation(manifest_of([]), 0.2, 0)
    with pytest.raises(UserError, match="9 folds of 2 patients"):
        patient_folds(samples_of([("1", "a"), ("2", "b")]), 9, 0)


@settings(max_examples=50, deadline=None)
@given(TABLES, st.integers(2, 4), st.integers(0, 3))
def test_folds_keep_patients_whole(table: list[tuple[str, str]], folds: int, seed: int) -> None:
    samples = samples_of(table)
    if folds > len({patient for patient, _ in table}):
        return
    numbers = patient_folds(samples, folds, seed)
    assert set(numbers) <= set(range(folds))
    by_patient = {(s.patient_id, n) for s, n in zip(samples, numbers, strict=True)}
    assert len(by_patient) == len({s.patient_id for s in samples})


def test_real_data_is_read_and_split_evenly_by_patient(real_manifest_path: Path) -> None:
    classes = ["circumscribed", "indistinct", "spiculated", "negative"]
    manifest = read_manifest(real_manifest_path, classes)
    counts = Counter(sample.label for sample in manifest.samples)
    assert counts == {"circumscribed": 287, "indistinct": 241, "spiculated": 224, "negative": 240}
    assert sum(sample.box is not None for sample in manifest.samples) == 585
    with pytest.warns(UserWarning, match="negative"):
        split = with_validation(manifest, 0.2, 0)
    held_out = Counter(sample.label for sample in split.split("validation"))
    for label in classes[:3]:
        assert abs(held_out[label] / counts[label] - 0.2) < 0.02
    folds = patient_folds(manifest.samples, 5, 0)
    sizes = Counter(zip(folds, (s.label for s in manifest.samples), strict=True))
    for fold, label in itertools.product(range(5), classes[:3]):
        assert abs(sizes[fold, label] / counts[label] - 0.2) < 0.02
