"""The crops, masks and tables that are made of what a finder found."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.annotations import Circle, MaskFile, Polygons, drawn_mask
from protopyramid.data.cropping import to_16_bits
from protopyramid.data.importers.base import (
    Crop,
    FilmRow,
    ImportPlan,
    Options,
    Skipped,
    Tissue,
    split_by_patient,
)
from protopyramid.data.importers.writer import ImportResult, check_folder, render, write_dataset
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import SOURCE_COLUMNS, read_manifest
from protopyramid.data.negatives.sources import read_films
from protopyramid.errors import UserError

from ..limits import error_with_file_limit


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two 8-bit films of 100 x 140 pixels, and a broken one."""
    folder = tmp_path / "source"
    folder.mkdir()
    for seed, name in enumerate(("a.png", "b.png")):
        values = np.random.default_rng(seed).integers(1, 256, (140, 100)).astype(np.uint8)
        Image.fromarray(values).save(folder / name)
    (folder / "broken.png").write_bytes(b"\x89PNG and no more")
    return folder


def make(
    source: Path, *crops: Crop, margin: float = 0.5, workers: int = 1, **found
) -> ImportResult:
    folder, options = source.parent / "out", Options(margin=margin)
    return write_dataset(ImportPlan(crops, **found), source, folder, "folders", options, workers)


def stored(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# --- drawn masks -----------------------------------------------------------------------------------


def test_values_of_16_bits_come_back_exactly(tmp_path: Path) -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(values).save(tmp_path / "all.png")
    assert (to_16_bits(read_image(tmp_path / "all.png")) == values).all()


# --- the dataset ----------------------------------------------------------------------------------


def test_a_lesion_becomes_a_crop_a_mask_and_a_row(source: Path) -> None:
    box = (30.0, 50.0, 50.0, 60.0)
    crop = Crop(
        name="first",
        image=source / "a.png",
        label="spiculated",
        split="test",
        patient_id="P_1",
        annotation=Polygons((((30, 50), (50, 50), (50, 60), (30, 60)),)),
        box=box,
        extra={"view": "CC"},
    )
    imported = make(source, crop)
    film = stored(source / "a.png")
    image = stored(imported.manifest.parent / "images/first.png")
    mask = stored(imported.manifest.parent / "masks/first.png")
    assert image.dtype == np.uint16 and mask.dtype == np.uint8
    assert (image == film[35:75, 20:60].astype(np.uint16) * 257).all()
    expected = np.zeros((40, 40))
    expected[15:25, 10:30] = 255
    assert (mask == expected).all()
    (sample,) = read_manifest(imported.manifest).samples
    assert sample.box == (10, 15, 30, 25)
    assert (sample.label, sample.split, sample.patient_id) == ("spiculated", "test", "P_1")
    region = dict(zip(SOURCE_COLUMNS[1:], ("20", "35", "60", "75"), strict=True))
    assert sample.extra == {"view": "CC", "source_image": "../source/a.png", **region}
    assert rows(imported.manifest.parent / "skipped.csv") == []


def test_without_a_box_it_is_that_of_the_mask_file_which_is_scaled(source: Path) -> None:
    mask = np.zeros((70, 50), np.uint8)
    mask[20:25, 10:20] = 1  # non-zero is inside, however dark
    Image.fromarray(mask).save(source / "mask.png")
    crop = Crop("m", source / "a.png", "x", "train", annotation=MaskFile(source / "mask.png"))
    imported = make(source, crop)
    (sample,) = read_manifest(imported.manifest).samples
    assert sample.box == (10, 15, 30, 25)
    made = stored(sample.mask)
    assert set(np.unique(made)) == {0, 255}
    assert (made > 0).sum() == 20 * 10
    assert any("1 masks had another size" in note for note in imported.notes)


def test_a_crop_larger_than_its_image_is_black_beyond_and_said_to_be(source: Path) -> None:
    imported = make(source, Crop("wide", source / "a.png", "x", "train", box=(5, 20, 95, 60)))
    image = stored(imported.manifest.parent / "images/wide.png")
    assert image.shape == (180, 180)
    film = stored(source / "a.png").astype(int) * 257
    left = next(x for x in range(180) if image[:, x].any())
    top = next(y for y in range(180) if image[y].any())
    assert (image[top : top + 140, left : left + 100] == film).all()
    assert image.astype(int).sum() == film.sum()
    assert any("1 crops are larger" in note and "black" in note for note in imported.notes)


def test_a_box_that_reaches_beyond_the_image_is_cut_at_its_edge(source: Path) -> None:
    imported = make(source, Crop("edge", source / "a.png", "x", "train", box=(-10, 10, 10, 30)))
    (sample,) = read_manifest(imported.manifest).samples
    assert sample.box == (0, 10, 10, 30)
    assert stored(sample.image).shape == (40, 40)


def test_negatives_are_whole_images_without_mask_or_box(source: Path) -> None:
    crop = Crop("n", source / "b.png", "negative", "train")
    boxed = Crop("t", source / "b.png", "negative", "train", box=(10, 10, 30, 30))
    imported = make(source, crop, boxed)
    whole, tissue = read_manifest(imported.manifest).samples
    assert (stored(whole.image) == stored(source / "b.png").astype(np.uint16) * 257).all()
    assert stored(tissue.image).shape == (40, 40)
    assert whole.mask is tissue.mask is whole.box is tissue.box is None
    assert not list((imported.manifest.parent / "masks").iterdir())


def test_a_whole_image_keeps_its_annotation(source: Path) -> None:
    circle = Circle((40, 60), 10)
    crop = Crop("w", source / "a.png", "x", "train", annotation=circle, whole=True)
    (sample,) = read_manifest(make(source, crop).manifest).samples
    assert sample.box == (30, 50, 50, 70)
    assert (stored(sample.mask) > 0).sum() == drawn_mask(circle, 140, 100).sum()


def test_squares_of_tissue_lie_in_the_breast_and_depend_on_their_seed_alone(source: Path) -> None:
    film = np.zeros((300, 200), np.uint8)
    film[40:260, :140] = np.random.default_rng(0).integers(150, 250, (220, 140))
    Image.fromarray(film).save(source / "film.png")
    crops = [
        Crop(f"t{seed}", source / "film.png", "negative", "train", tissue=Tissue(50, (seed,)))
        for seed in range(3)
    ]
    imported = make(source, *crops)
    made = [stored(sample.image) for sample in read_manifest(imported.manifest).samples]
    assert all(image.shape == (50, 50) and (image > 0).mean() >= 0.9 for image in made)
    again = write_dataset(
        ImportPlan(crops[2:]), source, source.parent / "other", "folders", Options(), 1
    )
    assert (stored(again.manifest.parent / "images/t2.png") == made[2]).all()


def test_colour_becomes_grey_and_is_noted(source: Path) -> None:
    Image.new("RGB", (60, 60), (255, 0, 0)).save(source / "red.png")
    imported = make(source, Crop("red", source / "red.png", "x", "train"))
    image = stored(imported.manifest.parent / "images/red.png")
    assert image.shape == (60, 60) and (image == round(0.299 * 65535)).all()
    assert any("1 colour images" in note for note in imported.notes)


def test_what_fails_is_listed_and_does_not_stop_the_rest(source: Path) -> None:
    Image.new("L", (100, 140)).save(source / "empty.png")
    Image.new("L", (100, 100), 255).save(source / "square.png")
    a = source / "a.png"
    imported = make(
        source,
        Crop("gone", source / "gone.png", "x", "train", box=(1, 1, 5, 5)),
        Crop("broken", source / "broken.png", "x", "train", box=(1, 1, 5, 5)),
        Crop("outside", a, "x", "train", box=(200, 10, 220, 30)),
        Crop("inverted", a, "x", "train", box=(30, 30, 10, 40)),
        Crop("unmasked", a, "x", "train", annotation=MaskFile(source / "empty.png")),
        Crop("shape", a, "x", "train", annotation=MaskFile(source / "square.png")),
        Crop("bad mask", a, "x", "train", annotation=MaskFile(source / "broken.png")),
        Crop("sliver", a, "x", "train", annotation=Polygons((((1, 1), (1.1, 1), (1, 1.1)),))),
        Crop("good", a, "x", "train", box=(10, 10, 30, 30)),
        skipped=[Skipped("calc table", "has no margins")],
    )
    found = {row["item"]: row["reason"] for row in rows(imported.manifest.parent / "skipped.csv")}
    assert list(found) == [
        "calc table",
        *("gone", "broken", "outside", "inverted", "unmasked", "shape", "bad mask", "sliver"),
    ]
    assert "unreadable image" in found["gone"] and "unreadable image" in found["broken"]
    assert "outside" in found["outside"] and "inverted" in found["inverted"]
    assert "empty" in found["unmasked"] and "empty" in found["sliver"]
    assert "another aspect ratio" in found["shape"] and "unreadable mask" in found["bad mask"]
    assert [sample.name for sample in read_manifest(imported.manifest).samples] == [
        "images/good.png"
    ]
    assert sorted(os.listdir(imported.manifest.parent / "images")) == ["good.png"]
    text = render(imported)
    assert "1 crops from 1 images" in text and "9 items skipped" in text
    assert "2  unreadable image" in text


def test_nothing_imported_is_an_error_of_one_line_that_says_why(source: Path) -> None:
    with pytest.raises(UserError, match=r"nothing could be imported.*unreadable image") as error:
        make(source, Crop("broken", source / "broken.png", "x", "train"))
    assert "\n" not in str(error.value)
    assert not (source.parent / "out/manifest.csv").exists()
    with pytest.raises(UserError, match="nothing to import was found") as error:
        make(source)
    assert str(error.value).startswith(
        f"{source}: "
    )  # what is wrong is there, not in the new folder


def test_two_crops_of_one_name_are_refused(source: Path) -> None:
    crops = [Crop(name, source / "a.png", "x", "train") for name in ("same", "Same")]
    with pytest.raises(UserError, match="rename one of them"):
        make(source, *crops)


def test_a_patient_in_two_splits_is_warned_of(source: Path) -> None:
    crops = [
        Crop(split, source / "a.png", "x", split, patient_id="P_9") for split in ("train", "test")
    ]
    assert any("P_9" in note and "warning" in note for note in make(source, *crops).notes)


def test_splits_are_drawn_by_patient() -> None:
    crops = [
        Crop(f"{patient}-{part}", Path("x"), "ab"[patient % 2], "", f"P{patient}")
        for patient in range(20)
        for part in range(2)
    ]
    found = split_by_patient(crops, Options(test_fraction=0.3, seed=1))
    splits = {crop.patient_id: crop.split for crop in found}
    assert all(splits[crop.patient_id] == crop.split for crop in found)
    assert sum(split == "test" for split in splits.values()) == 6
    assert [crop.split for crop in split_by_patient(crops, Options(test_fraction=0))] == [
        "train"
    ] * 40
    assert found != split_by_patient(crops, Options(test_fraction=0.3, seed=2))


# --- the folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [".", "below"])
def test_a_folder_in_the_download_or_in_use_is_refused(source: Path, inside: str) -> None:
    with pytest.raises(UserError, match="inside the download"):
        check_folder(source, source / inside, "folders", Options())
    used = source.parent / "used"
    used.mkdir()
    (used / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        check_folder(source, used, "folders", Options())


def test_other_options_are_refused_in_words(source: Path) -> None:
    crop = Crop("a", source / "a.png", "x", "train", box=(10, 10, 30, 30))
    make(source, crop)
    with pytest.raises(UserError, match=r"was imported with margin 0.5, not 0.25"):
        make(source, crop, margin=0.25)
    with pytest.raises(UserError, match="was imported with format folders, not coco"):
        check_folder(source, source.parent / "out", "coco", Options())


def lesions(source: Path) -> list[Crop]:
    return [
        Crop(
            f"{film}{number}",
            source / f"{film}.png",
            "x",
            "train",
            annotation=Circle((20 + 15 * number, 40), 6),
        )
        for film in "ab"
        for number in range(2)
    ]


def test_the_number_of_workers_changes_no_byte(source: Path) -> None:
    make(source, *lesions(source))
    alone = tree(source.parent / "out")
    folder = source.parent / "two"
    write_dataset(ImportPlan(lesions(source)), source, folder, "folders", Options(), workers=2)
    assert tree(folder) == alone


def test_crops_that_are_there_are_not_made_again(source: Path) -> None:
    make(source, *lesions(source))
    folder = source.parent / "out"
    before = {path: path.stat().st_ino for path in folder.glob("*/*.png")}
    content = tree(folder)
    (folder / "images/b0.png").unlink()
    make(source, *lesions(source))
    after = {path: path.stat().st_ino for path in folder.glob("*/*.png")}
    kept = [path for path in before if path.name.startswith("a")]
    assert [before[path] for path in kept] == [after[path] for path in kept]
    assert tree(folder) == content


def test_a_changed_source_is_cropped_anew_and_what_went_is_removed(source: Path) -> None:
    make(source, *lesions(source))
    Image.new("L", (100, 140), 7).save(source / "b.png")
    imported = make(source, *lesions(source)[1:])
    folder = imported.manifest.parent
    assert (stored(folder / "images/b0.png") == 7 * 257).all()
    assert sorted(path.name for path in folder.glob("*/a0.png")) == []
    assert len(read_manifest(imported.manifest).samples) == 3


def test_what_failed_is_tried_again(source: Path) -> None:
    crops = [*lesions(source), Crop("late", source / "broken.png", "x", "train")]
    assert len(make(source, *crops).skipped) == 1
    Image.new("L", (9, 9), 3).save(source / "broken.png")
    assert not make(source, *crops).skipped


def killed_at_write(number: int, after: bool, source: Path, folder: Path) -> int:
    """Import in a process that kills itself at one of its writes; the status of the process."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    count, replace = 0, os.replace

    def fatal(*paths) -> None:
        nonlocal count
        count += 1
        if after:
            replace(*paths)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        if not after:
            replace(*paths)

    os.replace = fatal
    write_dataset(ImportPlan(lesions(source)), source, folder, "folders", Options())
    os._exit(0)


@pytest.mark.parametrize("after", [False, True])
def test_an_import_killed_at_any_write_goes_on_to_the_same_bytes(source: Path, after: bool) -> None:
    make(source, *lesions(source))
    expected = tree(source.parent / "out")
    for number in range(1, 100):
        folder = source.parent / f"killed{number}"
        status = killed_at_write(number, after, source, folder)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        write_dataset(ImportPlan(lesions(source)), source, folder, "folders", Options())
        assert tree(folder) == expected, number
    assert number > 10  # settings, journal twice, four crops with masks, two tables


def test_a_journal_that_was_cut_short_is_read_up_to_there(source: Path) -> None:
    make(source, *lesions(source))
    folder = source.parent / "out"
    expected = tree(folder)
    journal = folder / "import.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    make(source, *lesions(source))
    assert tree(folder) == expected
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def children_of(parent: int) -> set[int]:
    """The processes that a process has started, by the system's table."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.add(int(path.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_end_when_their_parent_was_killed(source: Path) -> None:
    folder = source.parent / "out"
    for number in range(12):
        Image.new("L", (700, 700), number).save(source / f"film{number}.png")
    crops = [Crop(f"c{n}", source / f"film{n}.png", "x", "train") for n in range(12)]
    child = os.fork()
    if not child:
        write_dataset(ImportPlan(crops), source, folder, "folders", Options(), workers=2)
        os._exit(0)
    children: set[int] = set()
    while not list(folder.glob("images/*.png")):
        children |= children_of(child)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(children) >= 2
    end = time.monotonic() + 60
    while any(map(alive, children)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, children))
    write_dataset(ImportPlan(crops), source, folder, "folders", Options())
    other = source.parent / "whole"
    write_dataset(ImportPlan(crops), source, other, "folders", Options())
    assert tree(folder) == tree(other)


@pytest.mark.parametrize("limit", [40, 400, 1000])
def test_where_a_file_cannot_grow_it_is_named_and_the_import_can_be_resumed(
    source: Path, limit: int
) -> None:
    make(source, *lesions(source))
    expected = tree(source.parent / "out")
    folder = source.parent / "limited"
    plan = ImportPlan(lesions(source))
    message = error_with_file_limit(
        limit, lambda: write_dataset(plan, source, folder, "folders", Options())
    )
    assert str(folder) in message and "is larger than the limit" in message
    for path in folder.rglob("*.png"):
        Image.open(path).load()
    assert not list(folder.rglob(".partial*"))
    write_dataset(plan, source, folder, "folders", Options())
    assert tree(folder) == expected


def test_a_journal_that_names_other_files_neither_removes_nor_trusts_them(source: Path) -> None:
    make(source, *lesions(source))
    folder = source.parent / "out"
    expected = tree(folder)
    outside = source.parent / "precious.png"
    outside.write_bytes(b"mine")
    journal = folder / "import.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    stale = {**lines[0], "key": "0" * 32}
    lines[0]["crops"][0]["name"] = "../../precious"
    with journal.open("w") as file:
        for line in (*lines, stale):
            file.write(json.dumps(line) + "\n")
    make(source, *lesions(source))
    assert outside.read_bytes() == b"mine"
    assert tree(folder) == expected


# --- the table of films ---------------------------------------------------------------------------


def test_films_are_named_from_the_folder_with_their_lesions(source: Path) -> None:
    films = [
        FilmRow(source / "a.png", "P_1", "train", mask=source / "b.png"),
        FilmRow(source / "a.png", "P_1", "train", box=(1.25, 2, 3000000.5, 4)),
        FilmRow(source / "b.png", "P_2"),
    ]
    left_out = [Skipped("c.png", "film left out of films.csv: why")]
    imported = make(source, *lesions(source), films=films, films_left_out=left_out)
    folder = imported.manifest.parent
    assert (folder / "films.csv").read_text().splitlines() == [
        "image,patient_id,split,mask,lesion_x0,lesion_y0,lesion_x1,lesion_y1",
        "../source/a.png,P_1,train,../source/b.png,,,,",
        "../source/a.png,P_1,train,,1.25,2,3000000.5,4",
        "../source/b.png,P_2,,,,,,",
    ]
    first, second = read_films([folder / "films.csv"])
    assert (first.boxes, len(first.masks)) == (((1.25, 2, 3000000.5, 4),), 1)
    assert (second.path.resolve(), second.boxes) == (source / "b.png", ())
    assert rows(folder / "skipped.csv")[-1]["item"] == "c.png"
    text = render(imported)
    assert "films.csv lists 2 full films" in text
    assert "     1  film left out of films.csv" in text
    make(source, *lesions(source))  # now without films
    assert not (folder / "films.csv").exists()


def test_the_table_of_films_holds_where_the_folder_is_reached_by_a_link(
    source: Path, tmp_path: Path
) -> None:
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far/away")
    folder, found = (
        tmp_path / "link/out",
        ImportPlan(lesions(source), films=[FilmRow(source / "a.png", "P")]),
    )
    write_dataset(found, source, folder, "folders", Options())
    (film,) = read_films([folder / "films.csv"])
    assert film.path.resolve() == source / "a.png"
