"""Every setting that is a number has a unit, and nothing else has one."""

import re

from protopyramid.config.keys import SCHEDULE, walk_fields
from protopyramid.config.reference import PHASES
from protopyramid.config.schema import Config, Section
from protopyramid.config.units import UNITS

NUMERIC = re.compile(r"\b(int|float)\b|Literal\[1, 4, 8\]")


def numeric_keys(section: type[Section], prefix: str = "") -> set[str]:
    """The dotted keys below a section whose type holds a number."""
    found = set()
    for key, below in walk_fields(section, prefix):
        if below is None:
            owner = section
            for part in key.removeprefix(prefix).split(".")[:-1]:
                owner = owner.model_fields[part].annotation  # type: ignore[assignment]
            kind = repr(owner.model_fields[key.rpartition(".")[2]].annotation)
            if NUMERIC.search(kind):
                found.add(key)
    return found


def test_every_number_has_a_unit() -> None:
    phases = {key for phase in PHASES for key in numeric_keys(phase, f"{SCHEDULE}.")}
    assert numeric_keys(Config) | phases == set(UNITS)
