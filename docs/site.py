"""Pages of the site that are generated: every command's help, every setting, and the notebooks.

mkdocs calls `on_files`; `python docs/site.py` prints the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from protopyramid.cli.main import NAME, app
from protopyramid.config import load_config
from protopyramid.config.keys import walk_fields
from protopyramid.config.origins import Origin, preset_origins
from protopyramid.config.reference import PHASES, descriptions
from protopyramid.config.schema import Config
from protopyramid.config.units import UNITS

PAPER = "fpn-iaia-bl"
OURS = "protopyramid"
COMMANDS, SETTINGS = "reference/commands.md", "reference/settings.md"
DOCS = Path(__file__).resolve().parent
NOTEBOOKS = DOCS.parent / "notebooks"
RELATIVE_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)#]+)\)")
SCHEDULE = "train.schedule"


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to those that are written by hand."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository that are not pages, such as studies, become their names."""
    folder = Path(page.file.abs_src_path).parent if page.file.abs_src_path else DOCS

    def named(match: re.Match[str]) -> str:
        path = (folder / match[2]).resolve()
        inside = path.is_relative_to(DOCS) or not path.exists()
        return match[0] if inside else f"`{path.relative_to(DOCS.parent).as_posix()}`"

    return RELATIVE_LINK.sub(named, markdown)


def pages() -> dict[str, str]:
    """The generated pages, {path: Markdown}."""
    notebooks = {
        f"tutorials/{path.stem}.md": notebook_page(path) for path in NOTEBOOKS.glob("*.ipynb")
    }
    return {COMMANDS: commands_page(), SETTINGS: settings_page(), **notebooks}


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text and its code; notebooks are stored without outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    title, *rest = parts
    where = f"*The notebook `notebooks/{path.name}` of the repository; a test runs it.*"
    return "\n\n".join([title, where, *rest]).replace(".ipynb)", ".md)") + "\n"


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
    """Every setting: meaning, unit, the library's default, the paper's value with its origin, ours."""
    default, published, ours = flat(Config()), values(PAPER), values(OURS)
    origins = preset_origins(PAPER)
    parts = [
        "# Settings",
        "Each key as it is written in a TOML file or after `--set`. *default*: what a file that names no "
        f"preset gets. *paper*: the value of `{PAPER}`, the paper to the letter, and where it comes "
        f"from. *ours*: the value of `{OURS}`, our variant. An empty cell repeats the one to its left. "
        f"`{NAME} presets show NAME` prints any preset, with its schedule and these descriptions.",
    ]
    sections: dict[str, list[str]] = {}
    for key, text in descriptions().items():
        if key not in default or key == SCHEDULE:
            continue
        sections.setdefault(key.rpartition(".")[0], []).append(
            row(
                f"`{key}`",
                text,
                UNITS.get(key, ""),
                code(default[key]),
                "" if published[key] == default[key] else code(published[key]),
                origin(origins.get(key)),
                "" if ours[key] == published[key] else code(ours[key]),
            )
        )
    header = row("key", "meaning", "unit", "default", "paper", "origin", "ours")
    for section, rows in sections.items():
        parts += [f"\n## {section or 'general'}\n", header, "|---" * 7 + "|", *rows]
    return "\n".join([*parts, *phases()]) + "\n"


def phases() -> list[str]:
    """The settings of a phase of the schedule, whose values differ from phase to phase."""
    parts = [
        f"\n## {SCHEDULE}\n",
        "A list of phases, `[[train.schedule]]` in TOML, each with a `step`; every preset spells its own.\n",
        row("key", "of the steps", "meaning", "unit", "default"),
        "|---" * 5 + "|",
    ]
    fields = {name: field for phase in PHASES for name, field in phase.model_fields.items()}
    for name, field in fields.items():
        key = f"{SCHEDULE}.{name}"
        steps = [str(p.model_fields["step"].default) for p in PHASES if name in p.model_fields]
        known = (
            ""
            if field.is_required() or name == "step"
            else code(field.get_default(call_default_factory=True))
        )
        parts.append(
            row(f"`{name}`", ", ".join(steps), descriptions()[key], UNITS.get(key, ""), known)
        )
    return parts


def row(*cells: str) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell(each) for each in cells) + " |"


def code(value: Any) -> str:
    """A value as it would be written in TOML, or nearly."""
    return f"`{json.dumps(value)}`"


def values(preset: str) -> dict[str, Any]:
    """All settings of a preset by dotted key."""
    return flat(load_config(preset))


def flat(config: Config) -> dict[str, Any]:
    """All settings by dotted key; a table whose keys are free, such as counts by level, is one value."""
    content = config.model_dump(mode="json")
    found = {}
    for key, section in walk_fields(Config):
        value: Any = content
        for part in key.split("."):
            value = value[part]
        if section is None:
            found[key] = value
    return found


def origin(found: Origin | None) -> str:
    """Where a value comes from, in words."""
    if found is None:
        return ""
    return found.kind + (f": {found.text}" if found.text else "")


def cell(text: str) -> str:
    """Text that a Markdown table can hold."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


if __name__ == "__main__":
    for page in pages().values():
        print(page)
