"""Settings that have been renamed: the old key still works and says what it is called now.

A renamed key stays in its section. A `*` stands for any entry of a list, as in
`train.schedule.*.epochs`.
"""

from typing import Any

from protopyramid.errors import UserError

ALIASES: dict[str, str] = {
    "model.looks": "model.tta",
}


def current_key(key: str) -> str:
    """The key by its current name.

    >>> current_key("model.looks"), current_key("train.seed")
    ('model.tta', 'train.seed')
    """
    parts = key.split(".")
    pattern = ".".join("*" if part.isdecimal() else part for part in parts)
    if pattern not in ALIASES:
        return key
    return ".".join([*parts[:-1], ALIASES[pattern].rpartition(".")[2]])


def rename_keys(value: Any, place: str = "") -> tuple[Any, dict[str, str]]:
    """A copy of a value with every old key below it renamed, and the new key by each old one.

    `place` is the dotted key of the value itself, "" for a whole configuration.

    >>> rename_keys({"model": {"looks": 4}})
    ({'model': {'tta': 4}}, {'model.looks': 'model.tta'})
    """
    renamed: dict[str, str] = {}
    if isinstance(value, list):
        entries = []
        for index, entry in enumerate(value):
            entry, below = rename_keys(entry, _join(place, str(index)))
            entries.append(entry)
            renamed |= below
        return entries, renamed
    if not isinstance(value, dict):
        return value, renamed
    table: dict[str, Any] = {}
    for key, entry in value.items():
        old = _join(place, key)
        new = current_key(old)
        name = key if new == old else new.rpartition(".")[2]
        if new != old:
            refuse_both(old, new, name in value)
            renamed[old] = new
        table[name], below = rename_keys(entry, new)
        renamed |= below
    return table, renamed


def refuse_both(old: str, new: str, both: bool) -> None:
    """Refuse a configuration that sets a key under its old and its new name."""
    if both:
        raise UserError(f"{old}: is the old name of {new}, which is set too; remove {old}")


def deprecation(old: str, new: str) -> str:
    """What a user of an old key is told."""
    return f"{old} is now called {new}; the old name will stop working in a future version"


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
