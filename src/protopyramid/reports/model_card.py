"""MODEL_CARD.md of a run: what it is for, what it is not for, how good it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protopyramid import __version__
from protopyramid.model.tta import tta_text
from protopyramid.reports.report import (
    CARD,
    PAPER,
    Results,
    figure_text,
    margins,
    run_facts,
    stored_results,
    summary,
)
from protopyramid.runs.run import Run

USE = """\
**Research only. Not a medical device.** It has not been validated for clinical use and must not be used to
diagnose, to triage or to treat.

Meant for: research in interpretable image classification, teaching, and method comparison. A qualified
reader should look at every explanation: a wrong case behind a right answer is a reason to distrust it."""

LIMITS = """\
- It knows the classes above and no others, and gives one of them to any image, also to one unlike all
  that it has seen. `predict` and `explain` flag some such images, and about 5 % of ordinary ones.
- Figures hold for data like those of training: another scanner, population or way to crop is another task.
- Prototypes show which known case a part resembles. They do not show cause, nor malignancy.
- The paper reports that prototypes of indistinct margins often activate outside the lesion; check
  the activation precision above."""

BLACK_BOX_LIMITS = """\
- It knows the classes above and no others, and gives one of them to any image, also to one unlike all
  that it has seen. `predict` and `explain` flag some such images, and about 5 % of ordinary ones.
- Figures hold for data like those of training: another scanner, population or way to crop is another task.
- It is a black box: heat maps (Grad-CAM) show where its score reacts, not why."""


def write_model_card(run: Run, evaluation: Results | None = None) -> Path:
    """Write MODEL_CARD.md into the run folder and return its path."""
    results = evaluation if evaluation is not None else stored_results(run)
    limits = LIMITS if run.prototypes and margins(run) else BLACK_BOX_LIMITS
    if run.prototypes and not margins(run):
        limits = "\n".join(LIMITS.split("\n")[:4])
    parts = [
        f"# {run.name}",
        summary(run),
        "## Intended use\n\n" + USE,
        "## Training data\n\n" + _data(run, run_facts(run)),
        "## Figures\n\n" + _figures(run, results),
        "## Limits\n\n" + limits,
        "## How it was made\n\n" + _making(run, run_facts(run)),
        "## How to cite\n\n" + _citation(),
    ]
    return run.folder.write_text(CARD, "\n\n".join(parts) + "\n")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped.

    >>> print(markdown_table(["a", "b"], [["x|y", "1"]]))
    | a | b |
    |---|---|
    | x\\|y | 1 |
    """
    lines = [header, ["---"] * len(header), *rows]
    text = []
    for number, line in enumerate(lines):
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in line]
        text.append("|" + "|".join(cells) + "|" if number == 1 else "| " + " | ".join(cells) + " |")
    return "\n".join(text)


def _data(run: Run, facts: Mapping[str, Any]) -> str:
    counts: Mapping[str, Mapping[str, int]] = facts.get("counts") or {}
    if not counts:
        return "Not recorded."
    splits = [name for name in ("train", "validation", "test") if counts.get(name)]
    rows = [
        [name, *(str(counts[split].get(name, 0)) for split in splits)]
        for name in run.config.data.classes
    ]
    source = f"From the manifest `{facts.get('manifest', 'unknown')}`, images of each class:"
    return source + "\n\n" + markdown_table(["class", *splits], rows)


def _figures(run: Run, results: Results | None) -> str:
    if results is None:
        return f"Not evaluated yet: `protopyramid evaluate {run.name}`."
    auroc = results["auroc"]
    intervals = auroc.get("ci95_per_class") or {}
    rows = [
        [f"AUROC, {name}", figure_text(value, intervals.get(name))]
        for name, value in auroc["per_class"].items()
    ]
    rows.append(["AUROC, mean", figure_text(auroc["mean"], auroc.get("ci95"))])
    rows.append(["accuracy", figure_text(results["accuracy"], results.get("accuracy_ci95"))])
    for scale in ("fine", "lesion"):
        found = (results.get("activation_precision") or {}).get(scale) or {}
        if found.get("mean") is not None:
            text = figure_text(found["mean"], found.get("ci95"))
            chance = figure_text(found.get("chance"))
            rows.append([f"activation precision, {scale}", f"{text}; chance {chance}"])
    leaked = "**Leaked: measured on images of training.**\n\n" if results.get("leaked") else ""
    n = results.get("n")
    head = f"On the {results.get('split', 'test')} split" + (f" ({n} images)" if n else "")
    return f"{leaked}{head}, 95 % intervals in brackets:\n\n" + markdown_table(
        ["figure", "value"], rows
    )


def _making(run: Run, facts: Mapping[str, Any]) -> str:
    backbone = run.config.model.backbone
    tta = run.config.model.tta
    seen = f"; test-time augmentation with {tta_text(tta)}" if tta > 1 else ""
    version = facts.get("version") or facts.get("protopyramid") or __version__
    lines = [
        f"- system `{run.config.system}`, protopyramid {version}, seed {run.config.train.seed}",
        f"- backbone {backbone.name}, width {backbone.width}, started from "
        f"{backbone.weights or 'nothing'}; input {run.config.data.image_size} px{seen}",
        f"- {len(run.prototypes)} prototypes, listed in `prototypes.json` with their source images",
        "- every setting is in `config.toml`",
    ]
    return "\n".join(lines)


def _citation() -> str:
    return f"{PAPER}.\n\nSoftware: protopyramid {__version__}."
