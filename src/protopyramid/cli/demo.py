"""`protopyramid demo`: the paper's route in small, on phantoms, from nothing to a report."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protopyramid.data.manifest import Sample
    from protopyramid.evaluation.results import Evaluation
    from protopyramid.runs.run import Run


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the phantoms and the training.")] = 0,
) -> None:
    """Make phantoms, train IAIA-BL, train FPN-IAIA-BL on its backbone, evaluate, explain, report.

    A demo that was stopped goes on where it was when it is called again.
    """
    from protopyramid.cli.console import say
    from protopyramid.cli.evaluate import show, write_pages
    from protopyramid.runs.run import load_run

    started = time.monotonic()
    manifest = _phantoms(out / "phantoms", seed)
    _train(manifest, out, seed)
    run = load_run(out / "run")
    result, samples = _evaluate(run)
    _explain(run, samples, out / "explanations")
    report = write_pages(run, result, samples)
    show(result)
    say(f"took {time.monotonic() - started:.0f} s; explanations in {out / 'explanations'}")
    say(f"report: {report}")


def _phantoms(folder: Path, seed: int) -> Path:
    from protopyramid.cli.console import progress
    from protopyramid.data.phantoms import write_phantoms
    from protopyramid.errors import UserError

    manifest, marker = folder / "manifest.csv", folder / "seed"
    if manifest.is_file():
        if not marker.is_file() or marker.read_text().strip() != str(seed):
            raise UserError(f"{folder}: holds phantoms of another seed; give another --out")
        return manifest
    with progress("phantoms") as update:
        manifest = write_phantoms(folder, seed, workers=2, progress=update)
    marker.write_text(f"{seed}\n")
    return manifest


def _train(manifest: Path, out: Path, seed: int) -> None:
    from protopyramid.cli.train import complete, stop_in_order
    from protopyramid.config import load_config
    from protopyramid.config.small import DEMO_FIRST, DEMO_SECOND
    from protopyramid.training.engine import train_run

    first, second = out / "iaia-bl", out / "run"
    chosen = {"train.seed": seed}
    with stop_in_order(f"protopyramid demo --out {shlex.quote(str(out))} --seed {seed}"):
        train_run(load_config("iaia-bl", {**DEMO_FIRST, **chosen}), manifest, first, resume=True)
        config = load_config("fpn-iaia-bl", {**DEMO_SECOND, **chosen})
        train_run(config, manifest, second, backbone_from=first, resume=True)
    complete(second)


def _evaluate(run: "Run") -> tuple["Evaluation", "list[Sample]"]:
    from protopyramid.evaluation.evaluate import evaluate_run
    from protopyramid.evaluation.split import evaluated_split

    return evaluate_run(run), list(evaluated_split(run, None, "test").samples)


def _explain(run: "Run", samples: "list[Sample]", folder: Path) -> None:
    """One test image of each class."""
    from protopyramid.explain.explanation import explain_file

    for name in run.config.data.classes:
        sample = next(sample for sample in samples if sample.label == name)
        explanation = explain_file(run, sample.image, sample.name)
        explanation.save_all([folder / f"{name}{kind}" for kind in (".png", ".json")])
