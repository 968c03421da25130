"""`protopyramid demo`: our variant by the paper's procedure, on phantoms at small scale."""

import shlex
import time
from typing import Annotated

import typer

from protopyramid.cli.options import OutFolder


def demo(
    out: OutFolder,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the phantoms and the training.")] = 0,
) -> None:
    """Make phantoms, train IAIA-BL, train protopyramid on its backbone, evaluate, explain, report.

    protopyramid is our variant of FPN-IAIA-BL; the report lists what differs from the paper.

    The same command continues a demo that was stopped.
    """
    from protopyramid.cli.console import say
    from protopyramid.cli.evaluate import show
    from protopyramid.cli.train import stop_in_order
    from protopyramid.studies.demo import run_demo
    from protopyramid.utils.progress import progress_bar

    started = time.monotonic()
    with stop_in_order(f"protopyramid demo --out {shlex.quote(str(out))} --seed {seed}"):
        done = run_demo(out, seed, progress_bar)
    show(done.evaluation)
    say(f"took {time.monotonic() - started:.0f} s; explanations in {done.explanations}")
    say(f"report: {done.report}")
