"""Every setting is described where it is shown, with the values it takes."""

import re
import tomllib

import pytest

from protopyramid.config import annotated_toml, dump_config, load_config, preset_names
from protopyramid.config.keys import valid_keys
from protopyramid.config.reference import WIDTH, descriptions


def comment_above(text: str, setting: str) -> str:
    """The comment directly above a line that starts with a setting."""
    lines = text.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith(setting))
    first = place
    while lines[first - 1].startswith("#"):
        first -= 1
    return " ".join(line.removeprefix("# ") for line in lines[first:place])


@pytest.mark.parametrize("name", preset_names())
def test_comments_change_nothing(name: str) -> None:
    config = load_config(name)
    text = annotated_toml(config)
    assert tomllib.loads(text) == tomllib.loads(dump_config(config))
    assert max(map(len, text.splitlines())) <= WIDTH


def test_every_key_of_the_schema_is_described_where_it_stands() -> None:
    text = annotated_toml(load_config("fpn-iaia-bl"))
    words = re.sub(r"\n# ", " ", text)
    missing = [key for key in valid_keys() if descriptions()[key] not in words]
    assert missing == []


def test_a_description_stands_above_its_setting_with_values_and_range() -> None:
    text = annotated_toml(load_config("fpn-iaia-bl"))
    assert comment_above(text, "resample =").endswith('(ours). Values: "once", "epoch".')
    assert comment_above(text, "rotation =").endswith("Range: >= 0, <= 180.")
    assert comment_above(text, "[data.dicom]") == "How stored DICOM values become grey values."
    assert comment_above(text, "tta =").endswith("Values: 1, 4, 8.")


def test_settings_of_phases_are_described_once() -> None:
    text = annotated_toml(load_config("fpn-iaia-bl"))
    kinds = 'Kind of phase. Values: "train", "project", "fit-head", "repeat".'
    assert text.count(kinds) == 2  # of the schedule, and of what it repeats
    assert comment_above(text, "epochs =") == "Epochs, before train.scale. Range: > 0."
    assert comment_above(text, "times =") == "Number of repetitions. Range: >= 1, <= 10,000."


def test_names_of_classes_are_not_taken_for_settings() -> None:
    classes = ["seed", "negative", "a.b [c]"]
    text = annotated_toml(load_config("fpn-iaia-bl", {"data.classes": classes}))
    assert tomllib.loads(text)["data"]["classes"] == classes
