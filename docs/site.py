"""Pages of the site that are generated from the code: every command's help, every setting.

mkdocs calls `on_files`; `python docs/site.py` prints the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import typer

from protopyramid.cli.main import NAME, app
from protopyramid.config import load_config
from protopyramid.config.origins import Origin, preset_origins
from protopyramid.config.reference import descriptions

PAPER = "fpn-iaia-bl"
OURS = "protopyramid"
COMMANDS, SETTINGS = "reference/commands.md", "reference/settings.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to those that are written by hand."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """The generated pages, {path: Markdown}."""
    return {COMMANDS: commands_page(), SETTINGS: settings_page()}


def commands_page() -> str:
    """Every command with its help."""
    root = typer.main.get_command(app)
    parts = [
        "# Commands",
        "Exit code 0: done. 2: the input is wrong, told in one line. 1: a bug, or a problem that `doctor` "
        "found. 130 or 143: stopped by a signal, with everything saved.",
    ]
    for words, command in walk(root, (NAME,)):
        context = click.Context(command, info_name=" ".join(words), terminal_width=100)
        parts += [f"## {' '.join(words)}", f"```text\n{command.get_help(context).strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, with the words that call them."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*words, name))


def settings_page() -> str:
    """Every setting: what it means, the paper's value with its origin, and ours where it differs."""
    published, ours = values(PAPER), values(OURS)
    origins = preset_origins(PAPER)
    parts = [
        "# Settings",
        f"Each key as it is written in a TOML file or after `--set`. The value is that of `{PAPER}`, the "
        f"paper to the letter, with where it comes from; the last column is that of `{OURS}`, our variant, "
        f"where it differs. `{NAME} presets show NAME` prints any preset with these descriptions.",
    ]
    sections: dict[str, list[str]] = {}
    for key, text in descriptions().items():
        if key not in published or isinstance(published[key], dict) or ".steps." in key:
            continue
        differs = f"`{written(ours[key])}`" if ours.get(key) != published[key] else ""
        cells = [
            f"`{key}`",
            cell(text),
            f"`{written(published[key])}`",
            origin(origins.get(key)),
            differs,
        ]
        sections.setdefault(key.rpartition(".")[0], []).append("| " + " | ".join(cells) + " |")
    header = f"| key | meaning | paper's letter | origin | {OURS} |\n|---|---|---|---|---|"
    for section, rows in sections.items():
        parts += [f"\n## {section or 'general'}\n", header, *rows]
    return "\n".join(parts) + "\n"


def values(preset: str) -> dict[str, Any]:
    """All settings of a preset by dotted key, tables too; the schedule is left to `presets show`."""
    found: dict[str, Any] = {}

    def collect(content: dict[str, Any], prefix: str) -> None:
        for name, value in content.items():
            found[f"{prefix}{name}"] = value
            if isinstance(value, dict):
                collect(value, f"{prefix}{name}.")

    collect(load_config(preset).model_dump(mode="json"), "")
    found.pop("train.schedule", None)
    return found


def written(value: Any) -> str:
    """A value in a table cell."""
    return cell(str(value).lower() if isinstance(value, bool) else str(value)) or '""'


def origin(found: Origin | None) -> str:
    """Where a value comes from, in words."""
    if found is None:
        return ""
    return cell(found.kind + (f": {found.text}" if found.text else ""))


def cell(text: str) -> str:
    """Text that a Markdown table can hold."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


if __name__ == "__main__":
    for page in pages().values():
        print(page)
