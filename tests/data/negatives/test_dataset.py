"""Negatives are patches of tissue, as large as the lesions, that touch no lesion."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.check import check_manifest
from protopyramid.data.manifest import Manifest, read_manifest
from protopyramid.data.negatives import sampling
from protopyramid.data.negatives.dataset import (
    lesion_sides,
    match_sides,
    render,
    with_splits,
    write_negatives,
)
from protopyramid.data.negatives.patches import Limits
from protopyramid.data.negatives.sources import Film, read_films
from protopyramid.errors import UserError

from ..limits import error_with_file_limit
from .films import HEIGHT, LESION, WIDTH, tissue_of, touches

# --- how large, which split ----------------------------------------------------------------------


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


def test_fewer_patches_than_lesions_still_span_their_sizes() -> None:
    sides = match_sides(list(range(100, 200)), 10, np.random.default_rng(0))
    assert sorted(side // 10 for side in sides) == [*range(10, 20)]


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
        patch = [int(row[f"film_{edge}"]) for edge in ("x0", "y0", "x1", "y1")]
        number = int(row["film"].removesuffix(".png"))
        film = np.asarray(Image.open(table.parent / row["film"]))
        crop = np.asarray(Image.open(made.manifest.parent / row["image"]))
        assert crop.dtype == np.uint16
        assert (crop == film[patch[1] : patch[3], patch[0] : patch[2]]).all()
        assert not touches(patch, LESION)
        assert number not in masks or not touches(patch, masks[number])
        assert tissue_of(number)[patch[1] : patch[3], patch[0] : patch[2]].mean() >= 0.9
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


def test_a_command_that_was_stopped_continues_to_the_same_bytes(
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
    real = sampling.read_image
    monkeypatch.setattr(sampling, "read_image", lambda path: read.append(path.name) or real(path))
    write_negatives(films, tmp_path / "out", lesions, count=24)
    assert read == ["4.png", "5.png"]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    read.clear()
    (tmp_path / "out/images/negative-00007.png").unlink()
    write_negatives(films, tmp_path / "out", lesions, count=24)
    assert len(read) == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("limit", [100, 600, 2500])
def test_where_a_file_cannot_grow_it_is_named_and_the_command_can_be_resumed(
    table: Path, lesions: Manifest, tmp_path: Path, limit: int
) -> None:
    films = read_films([table])
    write_negatives(films, tmp_path / "whole", lesions, count=12)
    message = error_with_file_limit(
        limit, lambda: write_negatives(films, tmp_path / "out", lesions, count=12)
    )
    assert str(tmp_path / "out") in message and "is larger than the limit" in message
    assert not list((tmp_path / "out").rglob(".partial*"))
    write_negatives(films, tmp_path / "out", lesions, count=12)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_other_settings_in_the_same_folder_are_refused(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    films = read_films([table])
    out = tmp_path / "out"
    write_negatives(films, out, lesions, count=6)
    with pytest.raises(UserError, match="was started with seed 0"):
        write_negatives(films, out, lesions, count=6, seed=1)
    with pytest.raises(UserError, match="other films or lesions"):
        write_negatives(films[:5], out, lesions, count=6)
    with pytest.raises(UserError, match="is not empty"):
        write_negatives(films, table.parent, lesions, count=6)
    with pytest.raises(UserError, match="is a file"):
        write_negatives(films, table, lesions, count=6)


def test_patches_of_a_film_without_room_are_cut_from_others(
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


def test_missing_patches_are_counted(table: Path, lesions: Manifest, tmp_path: Path) -> None:
    made = write_negatives(
        read_films([table])[:1], tmp_path / "out", lesions, 400, limits=Limits(overlap=0)
    )
    assert 20 < made.written < 400
    assert len(rows_of(made.manifest)) == made.written
    assert len(list((tmp_path / "out/images").iterdir())) == made.written
    assert f"{400 - made.written} of 400 could not be sampled" in render(made)
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


def test_negatives_have_the_source_of_their_patients_lesions(
    table: Path, lesions: Manifest, tmp_path: Path
) -> None:
    header, *rows = lesions.path.read_text().splitlines()
    named = [f"{row},{'film' if ',p4,' in row else 'other'}" for row in rows]
    lesions.path.write_text("\n".join([f"{header},source", *named]) + "\n")
    films = [
        replace(film, patient_id="new") if n < 2 else film for n, film in enumerate(_films(table))
    ]
    made = write_negatives(films, tmp_path / "out", read_manifest(lesions.path), count=12)
    assert made.combined is not None
    found = {
        sample.patient_id: sample.source
        for sample in read_manifest(made.combined).samples
        if sample.label == "negative"
    }
    assert found.pop("new") == ""
    assert found == {"p4": "film", "p8": "other"}


def _films(table: Path) -> list[Film]:
    return list(read_films([table]))


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
    assert "6 of 6 films are listed without a lesion" in notes
    assert "all lesion crops are 24 pixels wide" in notes
    assert "no patient of the films is among the lesions" in notes
