"""The library's defaults on top of the paper's preset: what most tests are written for."""

from __future__ import annotations

from typing import Any

from protopyramid.config import load_config
from protopyramid.config.overrides import flat
from protopyramid.config.schema import Config


def library_defaults(preset: str = "fpn-iaia-bl") -> dict[str, Any]:
    """The schema's defaults where `fpn-iaia-bl` has other values; nothing for other presets."""
    if preset != "fpn-iaia-bl":
        return {}
    defaults = flat(Config().model_dump(mode="json"))
    paper = flat(load_config(preset).model_dump(mode="json"))
    return {
        key: value for key, value in defaults.items() if key != "system" and paper[key] != value
    }
