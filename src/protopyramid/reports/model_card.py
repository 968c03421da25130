"""MODEL_CARD.md of a run: what it is for, what it is not for, how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protopyramid import __version__
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.model.tta import tta_text
from protopyramid.reports.report import (
    CARD,
    PAPER,
    margins,
    run_facts,
    summary,
)
from protopyramid.runs.run import Run
from protopyramid.utils.tables import markdown_table, number

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


def write_model_card(run: Run, evaluation: Evaluation | None = None) -> Path:
    """Write MODEL_CARD.md into the run folder and return its path."""
    results = evaluation if evaluation is not None else read_evaluation(run.folder)
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


def _figures(run: Run, results: Evaluation | None) -> str:
    if results is None:
        return f"Not evaluated yet: `protopyramid evaluate {run.name}`."
    auroc, precision = results.auroc, results.activation_precision
    rows = [
        [f"AUROC, {name}", number(value, auroc.ci95_per_class.get(name))]
        for name, value in auroc.per_class.items()
    ]
    rows.append(["AUROC, mean", number(auroc.mean, auroc.ci95)])
    rows.append(["accuracy", number(results.accuracy, results.accuracy_ci95)])
    for scale, found in (("fine", precision.fine), ("lesion", precision.lesion)):
        if found.mean is not None:
            text = f"{number(found.mean, found.ci95)}; chance {number(found.chance)}"
            rows.append([f"activation precision, {scale}", text])
    leaked = "**Leaked: measured on images of training.**\n\n" if results.leaked else ""
    head = f"On the {results.split} split ({results.n} images), 95 % intervals in brackets:"
    return f"{leaked}{head}\n\n" + markdown_table(["metric", "value"], rows)


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
