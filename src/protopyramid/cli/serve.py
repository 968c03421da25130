"""`protopyramid serve`: the reader, a web page and an HTTP API for finished runs."""

from pathlib import Path
from typing import Annotated

import typer


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Run folders, or names of models.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="Table (CSV) whose cases can be opened on the page."),
    ] = None,
    readings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Run a reader study of the cases, and keep its answers in this folder.",
        ),
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Draw masks and lesion boxes on the cases, and keep them here."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the order of cases in a reader study.")
    ] = 0,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; one that other machines reach needs a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port (0 = any free one).")] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PROTOPYRAMID_TOKEN",
            show_envvar=True,
            help="Require this token (made up where one is needed and none is given).",
        ),
    ] = None,
) -> None:
    """Open films in a browser, mark lesions and see why the model says what it says."""
    from protopyramid.cli.console import say
    from protopyramid.errors import UserError

    try:
        from protopyramid.reader.server import serve as serve_runs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise UserError(
            "serve: needs the extra reader; install it with pip install 'protopyramid[reader]'"
        ) from None
    serve_runs(
        runs,
        data,
        host=host,
        port=port,
        token=token,
        open_page=open_page,
        readings=readings,
        annotations=annotations,
        seed=seed,
        say=say,
    )
