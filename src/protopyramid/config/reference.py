"""What every setting means, and a configuration written out with its meaning as comments."""

import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from protopyramid.config.keys import SCHEDULE, section_of
from protopyramid.config.loading import dump_config
from protopyramid.config.schema import (
    Config,
    FitHeadPhaseConfig,
    ProjectPhaseConfig,
    RepeatConfig,
    Section,
    TrainPhaseConfig,
)

WIDTH = 100
PHASES = (TrainPhaseConfig, ProjectPhaseConfig, FitHeadPhaseConfig, RepeatConfig)
HEADER = re.compile(r"\[\[?([^\[\]]+)\]\]?")
SETTING = re.compile(r"([A-Za-z0-9_-]+) = ")
BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def annotated_toml(config: Config) -> str:
    """The complete configuration as TOML, each setting with its description as a comment.

    A setting that occurs several times, as those of training phases do, is described once.
    """
    told: set[str] = set()
    lines: list[str] = []
    table = ""
    for line in dump_config(config).splitlines():
        if header := HEADER.fullmatch(line):
            table = header[1]
            keys = [
                ".".join(table.split(".")[: depth + 1]) for depth in range(table.count(".") + 1)
            ]
        elif setting := SETTING.match(line):
            keys = [f"{table}.{setting[1]}" if table else setting[1]]
        else:
            keys = []
        for key in keys:
            if key in descriptions() and key not in told:
                told.add(key)
                lines += textwrap.wrap(
                    descriptions()[key], WIDTH, initial_indent="# ", subsequent_indent="# "
                )
        lines.append(line)
    return "\n".join(lines) + "\n"


@cache
def descriptions() -> dict[str, str]:
    """What each key means and which values it takes; phases are described as `train.schedule.KEY`.

    >>> descriptions()["train.batch_size"]
    'Images per training batch, over all processes. Range: >= 1.'
    """
    found = dict(_describe(Config, ""))
    for prefix in (f"{SCHEDULE}.", f"{SCHEDULE}.steps."):
        for phase in reversed(PHASES):
            found |= dict(_describe(phase, prefix))
        kinds = [str(phase.model_fields["step"].default) for phase in PHASES]
        found[f"{prefix}step"] = f"Kind of phase. {_values(kinds)}"
    return found


def _describe(section: type[Section], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}", _sentence(field)
        if below := section_of(field):
            yield from _describe(below, f"{prefix}{name}.")


def _sentence(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    return " ".join(part for part in (text, _allowed(field)) if part)


def _allowed(field: FieldInfo) -> str:
    """The values or the range that a field takes, "" where its type says enough."""
    if get_origin(field.annotation) is Literal:
        return _values(list(get_args(field.annotation)))
    bounds = [
        f"{sign} {getattr(bound, name):,}"
        for bound in field.metadata
        for name, sign in BOUNDS.items()
        if hasattr(bound, name)
    ]
    return f"Range: {', '.join(bounds)}." if bounds else ""


def _values(values: list[Any]) -> str:
    written = [f'"{value}"' if isinstance(value, str) else str(value) for value in values]
    return f"Values: {', '.join(written)}."
