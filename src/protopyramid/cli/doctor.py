"""`protopyramid doctor`: what this installation has and lacks."""

from pathlib import Path

import typer

MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def doctor() -> None:
    """Check versions, threads, GPU, disk space and optional parts, with a remedy for what is missing.

    Exit code 1 if there is a problem.
    """
    from protopyramid import __version__
    from protopyramid.utils.diagnosis import diagnose

    checks = diagnose(Path.cwd())
    typer.echo(f"{MARKS['ok']}  protopyramid {__version__}")
    for check in checks:
        remedy = f"; {check.remedy}" if check.remedy else ""
        typer.echo(f"{MARKS[check.state]}  {check.name}: {check.found}{remedy}")
    if any(check.state == "problem" for check in checks):
        raise typer.Exit(1)
