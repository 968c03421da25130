"""The demo: our variant by the paper's procedure, on phantoms at small scale, from nothing to a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protopyramid import api
from protopyramid.config import load_config
from protopyramid.data import phantoms
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.evaluation.results import Evaluation
from protopyramid.evaluation.split import evaluated_split
from protopyramid.runs import layout
from protopyramid.runs.run import Run
from protopyramid.utils.files import write_text
from protopyramid.utils.opening import MARK, is_file, read_file
from protopyramid.utils.progress import Bars, no_bar

WORKERS = 2
FIRST, SECOND, PHANTOMS, EXPLANATIONS = "iaia-bl", "run", "phantoms", "explanations"


@dataclass(frozen=True)
class Demo:
    """What a demo leaves behind: its finished run, the evaluation, and where explanations are."""

    run: Run
    evaluation: Evaluation
    explanations: Path

    @property
    def report(self) -> Path:
        """The run's report."""
        return self.run.folder / layout.REPORT


def run_demo(out: str | Path, seed: int = 0, bars: Bars = no_bar) -> Demo:
    """Make phantoms, train IAIA-BL, train protopyramid on its backbone, evaluate and explain it.

    The same call continues a demo that was stopped.
    """
    folder = Path(out)
    manifest = make_phantoms(folder / PHANTOMS, seed, bars)
    run = train_both(manifest, folder, seed)
    chosen = evaluated_split(run, None, "test")
    with bars("evaluate") as update:
        result = api.evaluate(run, chosen, progress=update)
    explain_classes(run, chosen.samples, folder / EXPLANATIONS)
    return Demo(run, result, folder / EXPLANATIONS)


def make_phantoms(folder: Path, seed: int, bars: Bars = no_bar) -> Path:
    """The manifest of the demo's phantoms, which are drawn where they do not exist yet."""
    manifest, marker = folder / "manifest.csv", folder / "seed"
    if is_file(manifest):
        if not is_file(marker) or read_file(marker, MARK).strip() != str(seed).encode():
            raise UserError(f"{folder}: holds phantoms of another seed; give another --out")
        return manifest
    with bars("phantoms") as update:
        manifest = phantoms.write_phantoms(folder, seed, workers=WORKERS, progress=update)
    write_text(marker, f"{seed}\n")
    return manifest


def train_both(manifest: Path, out: Path, seed: int) -> Run:
    """Train IAIA-BL, then protopyramid on its backbone; what is finished is not trained again."""
    chosen = {"train.seed": seed}
    first = load_config("demo-iaia-bl", chosen)
    second = load_config("demo", chosen)
    api.train(first, manifest, out / FIRST, resume=True)
    return api.train(second, manifest, out / SECOND, backbone_from=out / FIRST, resume=True)


def explain_classes(run: Run, samples: tuple[Sample, ...], folder: Path) -> None:
    """Explain the first image of each class."""
    for name in run.config.data.classes:
        sample = next(sample for sample in samples if sample.label == name)
        explanation = api.explain(run, sample.image, sample.name)
        explanation.save_all([folder / f"{name}{kind}" for kind in (".png", ".json")])
