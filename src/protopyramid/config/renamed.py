"""Settings that have a new name. The old one still works, with a deprecation warning.

A run folder's own config.toml is read in silence: nobody wrote its keys by hand.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from protopyramid.errors import UserError

RENAMED = {"model.looks": "model.tta"}


def current_key(key: str, warn: bool = True, stacklevel: int = 3) -> str:
    """The present name of a dotted key.

    `stacklevel` makes the warning point at the caller of load_config, where the old key comes from.

    >>> current_key("model.looks", warn=False), current_key("train.seed")
    ('model.tta', 'train.seed')
    """
    if key not in RENAMED:
        return key
    if warn:
        message = f"{key} is deprecated: it is now called {RENAMED[key]}"
        warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)
    return RENAMED[key]


def with_current_keys(tree: Mapping[str, Any], source: str, warn: bool = True) -> dict[str, Any]:
    """A tree of settings with the present names; UserError where both names of one are set.

    >>> with_current_keys({"model": {"looks": 4}}, "a.toml", warn=False)
    {'model': {'tta': 4}}
    """
    result = dict(tree)
    for old, new in RENAMED.items():
        section, _, name = old.rpartition(".")
        table = result.get(section)
        if not isinstance(table, Mapping) or name not in table:
            continue
        renamed = new.rpartition(".")[2]
        if renamed in table:
            raise UserError(f"{source}: {old} and {new} are the same setting; keep {new}")
        current_key(old, warn, stacklevel=5)
        result[section] = {renamed if key == name else key: table[key] for key in table}
    return result
