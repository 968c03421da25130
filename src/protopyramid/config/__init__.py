"""Settings: the schema, the presets, and reading and writing them as TOML."""

from protopyramid.config.loading import (
    dump_config,
    load_config,
    load_saved_config,
    parse_assignments,
    preset_names,
    preset_summary,
)

__all__ = [
    "dump_config",
    "load_config",
    "load_saved_config",
    "parse_assignments",
    "preset_names",
    "preset_summary",
]
