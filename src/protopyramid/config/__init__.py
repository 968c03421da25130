"""Settings: the schema, the presets, and reading and writing them as TOML."""

from protopyramid.config.catalogue import overlay_names, preset_kind, preset_names, preset_summary
from protopyramid.config.differences import (
    departure_reason,
    difference_summary,
    differences,
    system_title,
)
from protopyramid.config.loading import dump_config, load_config, load_overlay
from protopyramid.config.overrides import parse_assignments
from protopyramid.config.reference import annotated_toml

__all__ = [
    "annotated_toml",
    "departure_reason",
    "difference_summary",
    "differences",
    "dump_config",
    "load_config",
    "load_overlay",
    "overlay_names",
    "parse_assignments",
    "preset_kind",
    "preset_names",
    "preset_summary",
    "system_title",
]
