"""Films come from tables with their lesions, or from folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.negatives.sources import read_films
from protopyramid.errors import UserError

from .films import LESION


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
