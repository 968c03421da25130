"""A film is among the full films only when the place of every lesion on it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.data.importers.base import FilmRow
from protopyramid.data.importers.full_films import Films

A, B = Path("src/a.png"), Path("src/b.png")


def test_several_lesions_are_several_rows_and_none_is_one() -> None:
    films = Films()
    films.add(A, "P", box=(1, 2, 3, 4))
    films.add(A, "P")
    films.add(A, "P", mask=B)
    films.add(A, "P", box=(1, 2, 3, 4))  # again
    films.add(B, "Q", "test")
    films.add(B, "Q", "test")
    assert films.table({"P": "train", "Q": "train"}) == [
        FilmRow(A, "P", "train", box=(1, 2, 3, 4)),
        FilmRow(A, "P", "train", mask=B),
        FilmRow(B, "Q", "test"),
    ]
    assert not films.left_out(Path("src"))


def test_a_refused_film_stays_out_whatever_comes_later() -> None:
    films = Films()
    films.refuse(A, "why")
    films.add(A, "P", box=(1, 2, 3, 4))
    films.refuse(A, "and why")
    assert not films.table()
    (left_out,) = films.left_out(Path("src"))
    assert (left_out.item, left_out.reason) == ("a.png", "film left out of films.csv: why")


def test_a_point_is_a_lesion_of_one_pixel() -> None:
    films = Films()
    films.add(A, "P", box=(7, 9, 7, 12))
    assert films.table()[0].box == (6.5, 9, 7.5, 12)


@pytest.mark.parametrize(
    "box", [(-5, 1, 0, 4), (1, -9, 4, -2), (3, 1, 2, 4), (1, 1, float("nan"), 4)]
)
def test_a_lesion_beside_its_film_leaves_the_film_out(
    box: tuple[float, float, float, float],
) -> None:
    films = Films()
    films.add(A, "P", box=box)
    assert not films.table() and "outside" in films.left_out(Path())[0].reason


def test_a_film_of_two_patients_or_splits_is_left_out() -> None:
    for patient, split in (("Q", "train"), ("P", "test")):
        films = Films()
        films.add(A, "P", "train")
        films.add(A, patient, split)
        assert not films.table() and "two patients or splits" in films.left_out(Path())[0].reason
