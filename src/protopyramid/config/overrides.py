"""Single settings by dotted key, such as `model.neck.dim`: parsed from text and put into a configuration."""

import copy
import numbers
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from protopyramid.config.keys import nearest_key, section_keys
from protopyramid.config.messages import shown
from protopyramid.errors import UserError

LEVELS = ("2", "3", "4", "5")
INTEGER_LIMIT = 2**63  # TOML's integers have 64 bits
Tree = dict[str, Any]


def parse_assignments(assignments: Iterable[str]) -> Tree:
    """Overrides from `KEY=VALUE` strings; a value that is not TOML is taken as a string.

    >>> parse_assignments(["data.image_size=64", "data.fit=pad", "data.classes=['a', 'b']"])
    {'data.image_size': 64, 'data.fit': 'pad', 'data.classes': ['a', 'b']}
    """
    overrides: Tree = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UserError(
                f"--set {shown(assignment)}: expected KEY=VALUE, for example train.seed=1"
            )
        overrides[key.strip()] = _parse_value(value.strip())
    return overrides


def _parse_value(text: str) -> Any:
    if text in ("True", "False"):  # Python's spelling
        return text == "True"
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # ValueError: also numbers with thousands of digits
        return text
    value = parsed.pop("value")
    is_setting = isinstance(value, (bool, int, float, str, list, dict)) and not parsed
    return value if is_setting else text


def plain(value: Any, key: str) -> Any:
    """A value in TOML's types, or a UserError; `key` is where it belongs."""
    if isinstance(value, Mapping):
        return {
            _plain_text(str(k), key): plain(v, f"{key}.{k}".lstrip(".")) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(entry, key) for entry in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (str, Path)):
        return _plain_text(str(value), key)
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        if abs(int(value)) >= INTEGER_LIMIT:
            raise UserError(f"{key}: the number does not fit in 64 bits")
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise UserError(
        f"{key}: expected a number, string, boolean, list or table, got {type(value).__name__}"
    )


def _plain_text(text: str, key: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{shown(key)}: {shown(text)} is not valid Unicode text") from None
    return text


def split_key(key: str) -> list[str]:
    """The parts of a dotted key; a part that contains a dot is written in double quotes.

    >>> split_key('loss.fine.inside."st. gallen".benign')
    ['loss', 'fine', 'inside', 'st. gallen', 'benign']
    """
    if not re.fullmatch(r'("[^"]*"|[^."]+)(\.("[^"]*"|[^."]+))*', key, re.DOTALL):
        raise UserError(f"{shown(key)}: not a key; keys look like model.neck.dim")
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^."]+)', key)]


def flat(tree: Tree, prefix: str = "") -> Tree:
    """The values of a tree by dotted key; only sections are taken apart, so tables stay whole.

    >>> flat({"model": {"neck": {"dim": 8}, "pooling": {"k": {2: 9}}}})
    {'model.neck.dim': 8, 'model.pooling.k': {2: 9}}
    """
    found: Tree = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if dotted in section_keys() and isinstance(value, dict):
            found |= flat(value, f"{dotted}.")
        else:
            found[dotted] = value
    return found


def merge_sections(base: Tree, extra: Tree, prefix: str = "") -> None:
    """Put `extra` into `base`: sections are merged, all other values are replaced."""
    for key, value in extra.items():
        dotted = f"{prefix}{key}"
        if dotted in section_keys() and isinstance(value, dict) and isinstance(base[key], dict):
            merge_sections(base[key], value, f"{dotted}.")
        else:
            base[key] = value


def with_override(tree: Tree, key: str, value: Any) -> Tree:
    """A copy of a complete tree with one dotted key set."""
    tree = copy.deepcopy(tree)
    parts = split_key(_plain_text(key, key))
    node: Any = tree
    for depth, part in enumerate(parts[:-1]):
        node = _descend(node, part, ".".join(parts[: depth + 1]), key)
    _assign(node, parts, value, key)
    return tree


def _descend(node: Any, part: str, so_far: str, key: str) -> Any:
    """The table or list below `part`; a missing table is created."""
    if isinstance(node, list):
        return node[_index(node, part, key)]
    if so_far == "model.pooling.k" and not isinstance(node.get(part), dict):
        node[part] = dict.fromkeys(LEVELS, node.get(part))
    child = node.setdefault(part, {})
    if not isinstance(child, (dict, list)):
        raise UserError(f"{key}: {so_far} is {shown(child)}, not a table{_hint(key)}")
    return child


def _assign(node: Any, parts: list[str], value: Any, key: str) -> None:
    last = parts[-1]
    if isinstance(node, list):
        node[_index(node, last, key)] = value
    else:
        below = ".".join(parts[:-1])
        merge_sections(node, {last: value}, f"{below}." if below else "")


def _index(entries: list[Any], part: str, key: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", part) or int(part) >= len(entries):
        raise UserError(
            f"{key}: {shown(part)} is not an index into a list of {len(entries)} "
            "(the first is 0); to replace the list, write KEY=[...]"
        )
    return int(part)


def _hint(key: str) -> str:
    near = nearest_key(key)
    return f"; did you mean {near}?" if near else ""
