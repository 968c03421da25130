"""Every value of a preset says where it comes from."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from protopyramid.config import preset_names
from protopyramid.config.catalogue import preset_text
from protopyramid.config.keys import valid_keys, walk_fields
from protopyramid.config.origins import NAMES, Origin, origins_below, preset_origins, read_origins
from protopyramid.config.schema import Config, RepeatConfig, TrainPhaseConfig

SYSTEMS = preset_names("system")
STUDIES = ("ablations.toml", "scale.toml")


def leaves(value: Any, place: str = "") -> list[str]:
    """Dotted keys of all values of a parsed file; an inline table or a plain list is one value."""
    found = []
    for key, entry in value.items():
        here = f"{place}.{key}" if place else key
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            for index, each in enumerate(entry):
                found += leaves(each, f"{here}.{index}")
        elif isinstance(entry, dict):
            found += leaves(entry, here) or [here]
        else:
            found.append(here)
    return found


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_value_of_a_system_is_marked(name: str) -> None:
    origins = preset_origins(name)
    assert [key for key, origin in origins.items() if origin is None] == []
    below = [key for key in leaves(tomllib.loads(preset_text(name))) if key not in NAMES]
    assert below
    for key in below:  # counted by another parser: nothing was passed over
        assert key in origins or any(key.startswith(f"{each}.") for each in origins), key


def test_fpn_iaia_bl_spells_every_setting() -> None:
    origins = preset_origins("fpn-iaia-bl")
    sections = {key for key, section in walk_fields(Config) if section is not None}
    settings = [key for key in valid_keys() if key not in sections and key not in NAMES]
    assert [key for key in settings if not origins_below(key, origins)] == []


def test_fpn_iaia_bl_spells_every_setting_of_its_training_phases() -> None:
    text = tomllib.loads(preset_text("fpn-iaia-bl"))
    stage_a, _, _, repeat = text["train"]["schedule"]
    assert set(stage_a) == set(TrainPhaseConfig.model_fields)
    assert set(repeat) == set(RepeatConfig.model_fields)
    assert set(repeat["steps"][0]) == set(TrainPhaseConfig.model_fields)


def test_what_is_ours_in_the_papers_system_is_nothing_that_the_paper_or_an_ancestor_gives() -> None:
    ours = {key for key, each in preset_origins("fpn-iaia-bl").items() if each.kind == "ours"}
    for key in ("model.pooling.kind", "model.pooling.k", "loss.cluster", "projection.source"):
        assert key not in ours
    assert {"model.neck.dim", "model.prototypes.counts"} <= ours


def test_everything_in_protopyramid_is_ours_and_has_a_reason() -> None:
    origins = preset_origins("protopyramid").values()
    assert all(each.kind == "ours" and len(each.text) > 8 for each in origins)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a = 1  # paper", Origin("paper")),
        ("a = 1  # paper; of 5,000", Origin("paper", note="of 5,000")),
        ("a = 1  # ancestor: IAIA-BL", Origin("ancestor", "IAIA-BL")),
        ("a = 1  # ancestor: IAIA-BL; 9 of 196", Origin("ancestor", "IAIA-BL", "9 of 196")),
        ("a = 1  # ours: a reason", Origin("ours", "a reason")),
        ("a = '# paper'", None),
        ('a = "#"  # ours: a # in it', Origin("ours", "a # in it")),
        ("a = 1", None),
        ("a = 1  # papers", None),
        ("a = 1  # ancestor", None),
        ("a = 1  # ours", None),
        ("a = 1  # ours:", None),
        ("a = 1  # Ours: a reason", None),
    ],
)
def test_a_mark_is_read_from_the_end_of_its_line(line: str, expected: Origin | None) -> None:
    assert read_origins(line) == {"a": expected}


def test_entries_of_lists_are_counted_each_in_its_own_list() -> None:
    text = """
[x]
a = 1  # paper
[[x.list]]
b = 2  # paper
[[x.list]]
b = 3  # paper
[[x.list.steps]]
c = 4  # paper
[[x.list.steps]]
c = 5  # paper
[[x.list]]
[[x.list.steps]]
c = 6  # paper
"""
    assert list(read_origins(text)) == [
        "x.a",
        "x.list.0.b",
        "x.list.1.b",
        "x.list.1.steps.0.c",
        "x.list.1.steps.1.c",
        "x.list.2.steps.0.c",
    ]


def test_a_value_over_several_lines_is_refused() -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        read_origins("a = [\n1,\n]  # paper")


def test_what_supports_a_departure_of_our_variant_exists() -> None:
    """[names] in its file are variants of a study, "names" are parts of docs/results.md."""
    project = Path(__file__).parents[2]
    studies = [tomllib.loads((project / "studies" / name).read_text()) for name in STUDIES]
    variants = {each["name"] for study in studies for each in study["variants"]}
    results = (project / "docs" / "results.md").read_text(encoding="utf-8")
    marks = [f"{each.text} {each.note}" for each in preset_origins("protopyramid").values() if each]
    named = {name for text in marks for name in re.findall(r"\[([a-z0-9-]+)\]", text)}
    parts = {name for text in marks for name in re.findall(r'"([^"]+)"', text)}
    assert len(named) > 8 and len(parts) > 3
    assert named <= variants
    assert [part for part in parts if not re.search(rf"(^#+ |^\*\*){part}", results, re.M)] == []
