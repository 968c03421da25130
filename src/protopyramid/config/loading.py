"""Reading a configuration from a preset or a TOML file, changing single keys, writing it back.

A TOML file starts from the schema's defaults, or from a preset that its top-level key `preset`
names: its tables are then merged into the preset's entry by entry, its lists replace the
preset's. An override gives one dotted key a new value: a section is merged, anything else is
replaced.

Example:
    >>> config = load_config("fpn-iaia-bl", {"train.seed": 1, "model.prototypes.counts.2": 5})
    >>> config.train.seed, config.model.prototypes.counts
    (1, {2: 5, 3: 3, 4: 3, 5: 3})
"""

import copy
import json
import numbers
import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from protopyramid.config.keys import nearest_key, section_keys
from protopyramid.config.messages import describe_errors, one_line, shown
from protopyramid.config.renamed import current_key, with_current_keys
from protopyramid.config.schema import Config
from protopyramid.errors import UserError

PRESETS = files("protopyramid.config") / "presets"
LEVELS = ("2", "3", "4", "5")
INTEGER_LIMIT = 2**63  # TOML's integers have 64 bits
Tree = dict[str, Any]


def preset_names() -> list[str]:
    """Names of the presets that come with the package.

    >>> preset_names()
    ['fpn-iaia-bl', 'iaia-bl', 'protopnet', 'vgg16']
    """
    names = (entry.name for entry in PRESETS.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def preset_summary(name: str) -> str:
    """One sentence on a preset: the first comment of its file."""
    return _preset_text(name).partition("\n")[0].lstrip("# ")


def load_config(
    name_or_path: str | Path, overrides: Mapping[str, Any] | None = None, *, warn: bool = True
) -> Config:
    """The configuration of a preset or of a TOML file, with some dotted keys overridden.

    Args:
        name_or_path: a preset's name, or the path of a TOML file.
        overrides: values by dotted key, for example `{"model.neck.dim": 64}`.
        warn: whether a key's old name gives a DeprecationWarning.

    Raises:
        UserError: one line that names the file or key, what is wrong and what to do.
    """
    overrides = dict(overrides or {})
    try:
        tree, source = _read(name_or_path, warn)
        for key, value in overrides.items():
            tree = _with_override(tree, current_key(key, warn), _plain(value, key))
        return _validated(tree, source, list(overrides))
    except RecursionError:
        raise UserError(f"{name_or_path}: tables or lists are nested too deeply") from None


def dump_config(config: Config) -> str:
    """The complete configuration as TOML that `load_config` reads back to an equal one."""
    return tomli_w.dumps(_tree(config))


def parse_assignments(assignments: Iterable[str]) -> Tree:
    """Overrides from `KEY=VALUE` strings, the value in TOML or else a plain string.

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
    except (ValueError, RecursionError):  # ValueError: also numbers of thousands of digits
        return text
    value = parsed.pop("value")
    is_setting = isinstance(value, (bool, int, float, str, list, dict)) and not parsed
    return value if is_setting else text


def _preset_text(name: str) -> str:
    return (PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def _read(name_or_path: str | Path, warn: bool) -> tuple[Tree, str]:
    """The tree of settings, and the name by which messages speak of where it comes from."""
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in preset_names():
        return _tree(_validated(tomllib.loads(_preset_text(name)), name, [])), name
    tree = _plain_file(_parse_file(Path(name_or_path)), name)
    tree = with_current_keys(tree, name, warn)
    if "preset" not in tree:
        # Completed here, so that an override of a single entry finds the table it belongs to.
        return _completed(tree), name
    preset = tree.pop("preset")
    if preset not in preset_names():
        raise UserError(f"{name}: preset: no preset {shown(preset)}; {_known_presets(preset)}")
    base = _tree(_validated(tomllib.loads(_preset_text(preset)), preset, []))
    return _merged(base, tree), name


def _parse_file(path: Path) -> Tree:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UserError(
            f"{path}: no preset and no file of this name; {_known_presets(str(path))}"
        ) from None
    except IsADirectoryError:
        raise UserError(
            f"{path}: is a folder; give a TOML file, such as the config.toml of a run"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; save the TOML file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # TOMLDecodeError, too long a number, a NUL in the path
        raise UserError(f"{one_line(str(path))}: not valid TOML: {one_line(str(error))}") from None


def _plain_file(tree: Tree, name: str) -> Tree:
    try:
        plain: Tree = _plain(tree, "")
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    return plain


def _known_presets(wanted: object) -> str:
    names = preset_names()
    near = [name for name in names if name.startswith(str(wanted))]
    near = near or get_close_matches(str(wanted), names, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}the presets are {', '.join(names)}"


def _tree(config: Config) -> Tree:
    """A configuration as TOML knows it: strings as keys, lists for tuples."""
    tree: Tree = config.model_dump(mode="json")
    return tree


def _completed(tree: Tree) -> Tree:
    """The defaults with the sections of `tree` merged in and all other values replaced."""
    complete = _tree(Config())
    _merge_sections(complete, tree, "")
    return complete


def _merge_sections(base: Tree, extra: Tree, prefix: str) -> None:
    for key, value in extra.items():
        dotted = f"{prefix}{key}"
        if dotted in section_keys() and isinstance(value, dict) and isinstance(base[key], dict):
            _merge_sections(base[key], value, f"{dotted}.")
        else:
            base[key] = value


def _merged(base: Any, extra: Any) -> Any:
    """`extra` laid over `base`: tables entry by entry, all else replaced."""
    if not (isinstance(base, dict) and isinstance(extra, dict)):
        return extra
    merged = dict(base)
    for key, value in extra.items():
        merged[key] = _merged(base[key], value) if key in base else value
    return merged


def _plain(value: Any, key: str) -> Any:
    """A value as TOML knows it, or a UserError: the rest of this module sees nothing else."""
    if isinstance(value, Mapping):
        return {
            _plain_text(str(k), key): _plain(v, f"{key}.{k}".lstrip(".")) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(entry, key) for entry in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (str, Path)):
        return _plain_text(str(value), key)
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        if abs(int(value)) >= INTEGER_LIMIT:
            raise UserError(f"{key}: the number has more than 64 bits")
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
    """The parts of a dotted key; a part with a dot in it is written in double quotes.

    >>> split_key('loss.fine.inside."st. gallen".benign')
    ['loss', 'fine', 'inside', 'st. gallen', 'benign']
    """
    if not re.fullmatch(r'("[^"]*"|[^."]+)(\.("[^"]*"|[^."]+))*', key, re.DOTALL):
        raise UserError(f"{shown(key)}: not a key; keys look like model.neck.dim")
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^."]+)', key)]


def _with_override(tree: Tree, key: str, value: Any) -> Tree:
    """A copy of the tree with one dotted key set."""
    tree = copy.deepcopy(tree)
    parts = split_key(_plain_text(key, key))
    node: Any = tree
    for depth, part in enumerate(parts[:-1]):
        node = _descend(node, part, ".".join(parts[: depth + 1]), key)
    _assign(node, parts, value, key)
    return tree


def _descend(node: Any, part: str, so_far: str, key: str) -> Any:
    """The table or list below `part`; a table that is not there yet is made."""
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
        _merge_sections(node, {last: value}, f"{below}." if below else "")


def _index(entries: list[Any], part: str, key: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", part) or int(part) >= len(entries):
        raise UserError(
            f"{key}: {shown(part)} is not an entry of a list of {len(entries)} "
            "(the first is 0); to replace the list, write KEY=[...]"
        )
    return int(part)


def _hint(key: str) -> str:
    near = nearest_key(key)
    return f"; did you mean {near}?" if near else ""


def _validated(tree: Tree, source: str, overridden: list[str]) -> Config:
    """The configuration of a tree of settings. Types are not guessed: "1" is not 1."""
    text = json.dumps(_plain(tree, source))
    try:
        return Config.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise UserError(describe_errors(error, tree, source, overridden)) from None
