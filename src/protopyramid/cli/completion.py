"""`protopyramid completion`: the script by which a shell completes our commands and options.

Typer's own options for this would load pydantic for every command.
"""

from typing import Annotated, Literal

import typer

Shell = Literal["bash", "zsh", "fish", "powershell"]
PROGRAM = "protopyramid"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell to print it for.")] = "bash",
) -> None:
    """Print the completion script of a shell, as in: eval "$(protopyramid completion bash)"."""
    from typer._completion_shared import get_completion_script

    variable = f"_{PROGRAM}_COMPLETE".upper()
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=variable, shell=shell))
