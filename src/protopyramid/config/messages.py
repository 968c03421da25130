"""What is wrong with a configuration, in one line: the key, what was expected, what was given, the remedy."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from protopyramid.config.keys import nearest_key
from protopyramid.errors import printable

SHOWN_LENGTH = 60
SHOWN_PROBLEMS = 3


def shown(value: object) -> str:
    """A value as messages show it: on one line, strings in double quotes, shortened if long.

    >>> shown("a\\nb"), shown(3), shown(list(range(99)))[-8:]
    ('"a\\\\nb"', '3', '5, 16...')
    """
    if isinstance(value, str):
        text = '"' + repr(value)[1:-1].replace("\\'", "'") + '"'
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = repr(value)
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."


def describe_errors(error: ValidationError, tree: Any, source: str, overridden: list[str]) -> str:
    """One line with the problems that validation found, by key, at most three."""
    problems: dict[str, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        problems.setdefault(_dotted(detail, tree), []).append(detail)
    lines = [_describe(key, details) for key, details in problems.items()]
    more = f" (and {len(lines) - SHOWN_PROBLEMS} more)" if len(lines) > SHOWN_PROBLEMS else ""
    text = "; ".join(lines[:SHOWN_PROBLEMS]) + more
    blamed = any(_related(key, other) for key in problems for other in overridden)
    return text if blamed else f"{source}: {text}"


def _related(key: str, other: str) -> bool:
    return not key or key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def _dotted(detail: ErrorDetails, tree: Any) -> str:
    """The dotted key of an error, without the tags that unions add to its location."""
    parts: list[str] = []
    node = tree
    last = len(detail["loc"]) - 1
    for depth, part in enumerate(detail["loc"]):
        if isinstance(node, dict) and str(part) in node:
            node = node[str(part)]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif not (depth == last and detail["type"] in ("missing", "extra_forbidden")):
            continue
        parts.append(str(part))
    if detail["type"] == "extra_forbidden":
        parts += _first_path(node)
    return ".".join(parts)


def _first_path(node: Any) -> list[str]:
    """The keys along the first entries of nested tables."""
    path: list[str] = []
    while isinstance(node, dict) and node:
        key = next(iter(node))
        path.append(str(key))
        node = node[key]
    return path


def _describe(key: str, details: list[ErrorDetails]) -> str:
    kinds = {detail["type"] for detail in details}
    name = printable(key)
    if "extra_forbidden" in kinds:
        near = nearest_key(key)
        return f"{name}: no such key" + (f"; did you mean {near}?" if near else "")
    if "missing" in kinds:
        return f"{name}: missing"
    if "value_error" in kinds:
        message = printable(details[0]["msg"].removeprefix("Value error, "))
        return f"{name}: {message}" if key else message
    expected = list(dict.fromkeys(_expected(detail) for detail in details))
    return f"{name}: expected {' or '.join(expected)}, got {shown(details[0]['input'])}"


def _expected(detail: ErrorDetails) -> str:
    """What a value should be, to complete the sentence "expected ..."."""
    kind, message = detail["type"], printable(detail["msg"])
    if kind in _WORDS:
        return _WORDS[kind]
    if kind == "too_short":
        return f"{detail['ctx']['min_length']} or more entries"
    if kind == "too_long":
        return f"{detail['ctx']['max_length']} or fewer entries"
    if kind == "union_tag_invalid":
        return f"a table whose step is one of {detail['ctx']['expected_tags']}"
    message = message.removeprefix("Input should be ")
    bound = "a level " if detail["loc"][-1:] == ("[key]",) else "a number "
    return f"{bound}{message}" if message.startswith(("greater", "less")) else message


_WORDS = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "union_tag_not_found": "a table with a key step",
}
