"""Reading a configuration from a preset or a TOML file, and writing it back.

A TOML file starts from the schema's defaults, or from the preset that its top-level key `preset` names:
its tables are then merged into the preset's entry by entry, and its lists replace the preset's. Its
top-level key `overlays` lists named settings that are put on top of the preset first. An override gives
one dotted key a new value: a section is merged, anything else is replaced.

Examples:
    >>> config = load_config("fpn-iaia-bl", {"train.seed": 1, "model.prototypes.counts.2": 5})
    >>> config.train.seed, config.model.prototypes.counts
    (1, {2: 5, 3: 3, 4: 3, 5: 3})
"""

import json
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from protopyramid.config.aliases import current_key, deprecation, refuse_both, rename_keys
from protopyramid.config.catalogue import (
    did_you_mean,
    overlay_names,
    overlay_text,
    preset_names,
    preset_text,
)
from protopyramid.config.messages import describe_errors, shown
from protopyramid.config.overrides import Tree, flat, merge_sections, plain, with_override
from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.utils.arguments import as_path, checked_type
from protopyramid.utils.opening import SETTINGS, read_text

NEGATIVE_KEY = "data.negative_class"


def load_config(
    name_or_path: str | Path, overrides: Mapping[str, Any] | None = None, *, warn: bool = True
) -> Config:
    """The configuration of a preset or of a TOML file, with some dotted keys overridden.

    Args:
        name_or_path: the name of a preset, or the path of a TOML file.
        overrides: values by dotted key, for example `{"model.neck.dim": 64}`.
        warn: whether a renamed key, which still works, gives a DeprecationWarning. A run's own
            config.toml is read without: nobody wrote its keys by hand.

    Raises:
        UserError: one line that names the file or key, what is wrong and what to do.
    """
    as_path(name_or_path, "name_or_path")
    if overrides is not None:
        checked_type(overrides, Mapping, "overrides", "a mapping of dotted keys to values")
    config, renamed = _load(name_or_path, overrides or {})
    for old, new in renamed.items() if warn else ():
        warnings.warn(deprecation(old, new), DeprecationWarning, stacklevel=2)
    return config


def load_overlay(name: str) -> Tree:
    """The settings of an overlay, or those that a preset puts on top of its own, by dotted key.

    >>> load_overlay("small")["data.image_size"]
    112
    """
    if name in overlay_names():
        return flat(tomllib.loads(overlay_text(name)))
    layers = [name for name in preset_names() if "preset" in tomllib.loads(preset_text(name))]
    if name not in layers:
        raise UserError(
            f"no overlay {shown(name)}; {did_you_mean(name, [*overlay_names(), *layers], 'overlays')}"
        )
    tree = tomllib.loads(preset_text(name))
    del tree["preset"]
    settings: Tree = {}
    for overlay in tree.pop("overlays", []):
        settings |= load_overlay(overlay)
    return {**settings, **flat(tree)}


def dump_config(config: Config) -> str:
    """The complete configuration as TOML that `load_config` reads back to an equal one."""
    checked_type(config, Config, "config", "a Config, as load_config gives it")
    return tomli_w.dumps(_tree(config))


@dataclass
class _Settings:
    """A tree of settings as a preset or file gives it.

    `source` is what messages call it, `renamed` has the new name of each old key in it, and
    `names_negative` tells whether a user's file says which class is the negative one.
    """

    tree: Tree
    source: str
    renamed: dict[str, str]
    names_negative: bool = False


def _load(name_or_path: str | Path, overrides: Mapping[str, Any]) -> tuple[Config, dict[str, str]]:
    """A configuration, and the renamed keys in it: the new name of each old one."""
    try:
        settings = _read(name_or_path)
        current = _current(overrides, settings.renamed)
        tree = settings.tree
        for key, value in current.items():
            tree = with_override(tree, key, value)
        if not (settings.names_negative or NEGATIVE_KEY in flat(current)):
            _drop_absent_negative(tree)
        return _validated(tree, settings.source, list(current)), settings.renamed
    except RecursionError:
        raise UserError(f"{name_or_path}: tables or lists are nested too deeply") from None


def _current(overrides: Mapping[str, Any], renamed: dict[str, str]) -> Tree:
    """The overrides with today's keys and plain values; old keys are added to `renamed`."""
    current: Tree = {}
    for key, value in overrides.items():
        new = current_key(key)
        if new != key:
            refuse_both(key, new, new in overrides)
            renamed[key] = new
        current[new], below = rename_keys(plain(value, key), new)
        renamed |= below
    return current


def _drop_absent_negative(tree: Tree) -> None:
    """Forget a preset's negative class where the user's classes do not have it."""
    data = tree.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("classes"), list):
        return  # validation says what is wrong
    if data.get("negative_class") not in data["classes"]:
        data.pop("negative_class", None)


def _read(name_or_path: str | Path) -> _Settings:
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in preset_names():
        return _Settings(_preset_tree(name), name, {})
    tree, renamed = _plain_file(_parse_file(Path(name_or_path)), name)
    names_negative = NEGATIVE_KEY in flat(tree)
    return _Settings(_on_its_base(tree, name), name, renamed, names_negative)


def _preset_tree(name: str) -> Tree:
    """The complete settings of a preset."""
    tree = tomllib.loads(preset_text(name))
    return _tree(_validated(_on_its_base(tree, name), name, []))


def _on_its_base(tree: Tree, name: str) -> Tree:
    """The settings of a file on top of the preset and the overlays that it names, or the defaults."""
    preset, overlays = tree.pop("preset", None), tree.pop("overlays", [])
    if preset is None:
        base = _tree(Config())
    elif preset in preset_names():
        base = _preset_tree(preset)
    else:
        known = did_you_mean(preset, preset_names(), "presets")
        raise UserError(f"{name}: preset: no preset {shown(preset)}; {known}")
    for key, value in _overlay_settings(overlays, name).items():
        base = with_override(base, key, value)
    if preset is None:
        merge_sections(base, tree)
        return base
    merged: Tree = _merged(base, tree)
    return merged


def _overlay_settings(overlays: Any, name: str) -> Tree:
    if not isinstance(overlays, list):
        raise UserError(
            f'{name}: overlays: expected a list such as ["small"], got {shown(overlays)}'
        )
    settings: Tree = {}
    for overlay in overlays:
        try:
            settings |= load_overlay(overlay)
        except UserError as error:
            raise UserError(f"{name}: overlays: {error}") from None
    return settings


def _parse_file(path: Path) -> Tree:
    try:
        tree = tomllib.loads(read_text(path, SETTINGS))
    except FileNotFoundError:
        known = did_you_mean(str(path), preset_names(), "presets")
        raise UserError(f"{path}: no preset and no file of this name; {known}") from None
    except IsADirectoryError:
        raise UserError(
            f"{path}: is a folder; give a TOML file, such as the config.toml of a run"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; save the TOML file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # TOMLDecodeError, a number with too many digits, a NUL in the path
        raise UserError(f"{path}: not valid TOML: {error}") from None
    if not tree:
        raise UserError(f'{path}: has no settings; name at least a preset, as in preset = "vgg16"')
    return tree


def _plain_file(tree: Tree, name: str) -> tuple[Tree, dict[str, str]]:
    try:
        return rename_keys(plain(tree, ""))
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def _tree(config: Config) -> Tree:
    """A configuration in TOML's types: strings as keys, lists for tuples."""
    tree: Tree = config.model_dump(mode="json")
    return tree


def _merged(base: Any, extra: Any) -> Any:
    """`extra` on top of `base`: tables are merged entry by entry, all else is replaced."""
    if not (isinstance(base, dict) and isinstance(extra, dict)):
        return extra
    merged = dict(base)
    for key, value in extra.items():
        merged[key] = _merged(base[key], value) if key in base else value
    return merged


def _validated(tree: Tree, source: str, overridden: list[str]) -> Config:
    """The configuration of a tree of settings. Types are not converted: "1" is not 1."""
    text = json.dumps(plain(tree, source))
    try:
        return Config.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise UserError(describe_errors(error, tree, source, overridden)) from None
