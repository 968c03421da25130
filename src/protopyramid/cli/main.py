"""The command `protopyramid`: its verbs, and how their errors are reported.

Exit 0 = done, 2 = the user's input is wrong (one line on stderr), 1 = a bug of ours (traceback),
130 = stopped by the user. A command's module imports nothing heavy at its top, so `--help` and a
mistyped option are answered at once.
"""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from protopyramid import __version__
from protopyramid.cli import (
    bench,
    compare,
    completion,
    crossval,
    data,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    faithfulness,
    models,
    predict,
    presets,
    prototypes,
    readings,
    serve,
    study,
    train,
)
from protopyramid.cli.editing import NumbersCommand
from protopyramid.cli.help import Help, help_unless_command
from protopyramid.errors import UserError, printable
from protopyramid.utils.quiet import own_stderr

NAME = "protopyramid"
PACKAGE = Path(__file__).parent.parent
COMPLETION = f"_{NAME}_COMPLETE".upper()  # set by the script of `completion`
BUG, WRONG_INPUT, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
NO_MEMORY = "memory ran out; give smaller images, or use a machine with more of it"
# System errors that the user can remedy and we cannot.
USERS_OWN = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENFILE,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
    errno.ESTALE,
}

app = typer.Typer(
    name=NAME,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(presets.app, name="presets")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
for verb in (
    demo.demo,
    train.train,
    crossval.crossval,
    evaluate.evaluate,
    predict.predict,
    compare.compare,
    explain.explain,
    faithfulness.faithfulness,
    prototypes.prototypes,
    serve.serve,
    readings.readings,
    export.export,
    study.study,
    bench.bench,
    doctor.doctor,
    completion.completion,
):
    app.command(cls=NumbersCommand if verb is prototypes.prototypes else None)(verb)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{NAME} {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True, add_help_option=False)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print results, warnings and errors alone.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also name the files that are written.")
    ] = False,
    help: Help = False,
) -> None:
    """Case-based, multi-scale, interpretable classification of mammographic masses."""
    help_unless_command(context)
    if quiet and verbose:
        raise UserError("--quiet and --verbose: give one of them")
    from protopyramid.utils.log import set_verbosity

    set_verbosity(quiet, verbose)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if COMPLETION in os.environ:  # a shell asks
        from typer._completion_classes import completion_init

        completion_init()
    try:
        check_none_empty(sys.argv[1:] if arguments is None else arguments)
        with own_stderr(), one_line_warnings():
            code = app(args=arguments, prog_name=NAME, standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        return _usage_error(error)
    except UserError as error:
        return _wrong_input(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        return _closed_pipe(error)
    except OSError as error:
        return _system_error(error)
    except MemoryError:
        return _wrong_input(NO_MEMORY)
    except Exception:
        traceback.print_exc()
        return BUG


def check_none_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument: as a path it would mean the current folder, which nobody asked for.

    >>> check_none_empty(["explain", "run", "a.png", "--strongest"])
    """
    for place, argument in enumerate(arguments):
        if not argument:
            before = arguments[place - 1] if place else ""
            what = before if before.startswith("-") else f"argument {place + 1}"
            raise UserError(f"{what}: expected a value, got an empty text; is a variable not set?")


def _say(kind: str, message: str) -> None:
    """One line on stderr, whatever the message holds."""
    print(f"{NAME}: {kind}: {printable(message)}", file=sys.stderr)


def _wrong_input(message: str) -> int:
    _say("error", message)
    return WRONG_INPUT


def _usage_error(error: typer.TyperException) -> int:
    message = "; ".join(
        part.strip() for part in error.format_message().splitlines() if part.strip()
    )
    context = getattr(error, "ctx", None)
    advice = "" if context is None else f"; try '{context.command_path} --help'"
    return _wrong_input(message + advice)


def _closed_pipe(error: BaseException) -> int:
    """Nobody reads our output any longer (`| head`): stop silently."""
    if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
        raise error
    # What is still buffered must not be written to the closed pipe when Python exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _system_error(error: OSError) -> int:
    if error.errno in USERS_OWN or (error.errno == errno.EINVAL and error.filename):
        place = f"{error.filename}: " if error.filename else ""
        return _wrong_input(f"{place}{error.strerror}")
    traceback.print_exc()
    return BUG


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Within it, a warning from our own code is one line on stderr, without file and line, and said once."""
    said: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning
        # Python hides deprecations outside __main__; users must see those of their own settings.
        warnings.filterwarnings("default", category=DeprecationWarning, module=NAME)

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if Path(filename).is_relative_to(PACKAGE):
                if str(message) not in said:
                    _say("warning", str(message))
                said.add(str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
