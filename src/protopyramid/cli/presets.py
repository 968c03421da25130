"""`protopyramid presets`: the systems, demo settings and recipes that come with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.cli.help import Help

if TYPE_CHECKING:
    from protopyramid.config.schema import Config

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True, add_help_option=False)
def presets(context: typer.Context, help: Help = False) -> None:
    """List the presets, or show or draw one."""
    if context.invoked_subcommand is not None:
        return
    from protopyramid.config import (
        difference_summary,
        load_config,
        preset_kind,
        preset_names,
        preset_summary,
    )

    names = preset_names()
    width = max(map(len, names)) + 2
    for name in names:
        kind = preset_kind(name)
        mark = "" if kind == "system" else f"[{kind}] "
        config = load_config(name)
        facts = f"{size_of(config)}; {difference_summary(config)}"
        typer.echo(f"{name:<{width}}{mark}{preset_summary(name)} ({facts})")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a preset, or a TOML file.")],
    plain: Annotated[bool, typer.Option("--plain", help="Print values without comments.")] = False,
    differences: Annotated[
        bool,
        typer.Option("--differences", help="Print what differs from the published system instead."),
    ] = False,
) -> None:
    """Print all settings of a preset as TOML, to copy and change."""
    from protopyramid.config import annotated_toml, dump_config, load_config

    config = load_config(name)
    if differences:
        typer.echo(differences_table(config), nl=False)
        return
    typer.echo(dump_config(config) if plain else annotated_toml(config), nl=False)


def differences_table(config: "Config") -> str:
    """A Markdown table of what differs from the published system, under a line that says how much.

    Of a preset that is as published: what its file marks as ours, with the reasons.
    """
    from protopyramid.config import departure_reason, difference_summary
    from protopyramid.config import differences as computed
    from protopyramid.config.differences import own_choices, reference_preset
    from protopyramid.utils.tables import markdown_table

    summary = f"{config.system}: {difference_summary(config)}\n"
    if not computed(config):
        chosen = own_choices(reference_preset(config)).items()
        table = markdown_table(
            ["ours in this preset", "why"], [[f"`{key}`", why] for key, why in chosen], words=True
        )
        return f"{summary}\n{table}\n"
    header, rows = (
        ["setting", "paper", "here", "why"],
        [
            [f"`{each.key}`", each.paper, each.run, departure_reason(config, each.key)]
            for each in computed(config)
        ],
    )
    if not any(row[-1] for row in rows):  # only our variant gives reasons
        header, rows = header[:-1], [row[:-1] for row in rows]
    return f"{summary}\n{markdown_table(header, rows, words=True)}\n"


@app.command()
def draw(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of a preset, a TOML file, or a run folder."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="File to write: .png, .pdf or .svg.")
    ] = Path("architecture.png"),
) -> None:
    """Draw the network with its sizes and counts."""
    from protopyramid.utils.files import check_output_folder

    check_output_folder(out.parent)
    from protopyramid import api
    from protopyramid.cli.console import say

    say(str(api.draw_architecture(name, out)))


def size_of(config: "Config") -> str:
    """Input size and number of prototypes, in a few words."""
    from protopyramid.config.schema import prototype_counts

    pixels = f"{config.data.image_size} px"
    if config.model.neck.kind == "none":
        return f"{pixels}, no prototypes"
    counts = list(prototype_counts(config).values())
    levels = sorted({level for by_level in counts for level, count in by_level.items() if count})
    total = sum(sum(by_level.values()) for by_level in counts)
    where = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]}-{levels[-1]}"
    return f"{pixels}, {total} prototypes on {where}"
