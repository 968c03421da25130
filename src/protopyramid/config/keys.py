"""The dotted keys of a configuration, and the one that a misspelt key comes closest to."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

from pydantic.fields import FieldInfo

from protopyramid.config.schema import Config, RepeatConfig, Section, TrainPhaseConfig

SCHEDULE = "train.schedule"


def section_of(field: FieldInfo) -> type[Section] | None:
    """The section that a field holds, None for a single setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def walk_fields(
    model: type[Section], prefix: str = ""
) -> Iterator[tuple[str, type[Section] | None]]:
    """Every dotted key below a section, with the section it holds, if any."""
    for name, field in model.model_fields.items():
        section = section_of(field)
        yield f"{prefix}{name}", section
        if section is not None:
            yield from walk_fields(section, f"{prefix}{name}.")


@cache
def section_keys() -> frozenset[str]:
    """Dotted keys of the sections, such as `model.neck`."""
    return frozenset(key for key, section in walk_fields(Config) if section is not None)


@cache
def valid_keys() -> tuple[str, ...]:
    """Every dotted key of the schema, including sections."""
    return tuple(key for key, _ in walk_fields(Config))


def nearest_key(key: str) -> str | None:
    """The valid key most similar to a wrong one, or None.

    >>> nearest_key("model.neck.dimm"), nearest_key("neck.dim"), nearest_key("zzz")
    ('model.neck.dim', 'model.neck.dim', None)
    """
    candidates = [*valid_keys(), *_phase_keys(key)]
    last = key.rpartition(".")[2]
    same_name = [candidate for candidate in candidates if candidate.rpartition(".")[2] == last]
    near = get_close_matches(key[:200], same_name or candidates, n=1, cutoff=0.6)
    return near[0] if near else next(iter(same_name), None)


def _phase_keys(key: str) -> list[str]:
    """The keys that a phase of the schedule may have in the place of the wrong one."""
    parent = key.rpartition(".")[0]
    if not parent.startswith(f"{SCHEDULE}."):
        return []
    return [
        f"{parent}.{name}"
        for name in {**TrainPhaseConfig.model_fields, **RepeatConfig.model_fields}
    ]
