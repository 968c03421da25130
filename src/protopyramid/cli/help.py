"""The `--help` of a group of commands.

Typer's own costs a tenth of a second: whether asked for or not, it loads pydantic on the way to a command.
This one has the default False instead of None, which typer passes on unchanged.
"""

from typing import Annotated

import typer


def _show(context: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(context.get_help())
        raise typer.Exit()


Help = Annotated[
    bool,
    typer.Option("--help", "-h", is_eager=True, callback=_show, help="Show this message and exit."),
]


def help_unless_command(context: typer.Context) -> None:
    """A group called without a command shows its help."""
    _show(context, context.invoked_subcommand is None)
