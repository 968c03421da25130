"""MODEL_CARD.md of a run: what it is for, what it is not for, how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protopyramid.data.manifest import SPLITS
from protopyramid.errors import printable
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.model.tta import tta_text
from protopyramid.reports.facts import (
    difference_rows,
    difference_title,
    difference_words,
    edit_history,
    paper,
)
from protopyramid.reports.report import (
    CARD,
    figure_text,
    margins,
    run_facts,
    summary,
)
from protopyramid.runs.provenance import RANDOM, Provenance
from protopyramid.runs.run import Run
from protopyramid.utils.tables import markdown_table, markdown_text

USE = """\
**Research only. Not a medical device.** It has not been validated for clinical use and must not be used to
diagnose, triage or treat.

Intended for research in interpretable image classification, teaching, and comparison of methods. A
qualified reader should look at every explanation: a wrong case behind a right answer is a reason to
distrust it."""

KNOWN_CLASSES = """\
It knows the classes above and no others, and gives one of them to every image, even to one unlike
anything it has seen. `predict` and `explain` flag some such images, and about 5 % of in-distribution ones."""
SAME_DATA = """\
The figures hold for data like the training data: another scanner, population or way of cropping is a
different task."""
RESEMBLANCE = """\
Prototypes show which known case a part of the image resembles. They show neither cause nor malignancy."""
INDISTINCT = """\
The paper of FPN-IAIA-BL reports that prototypes of indistinct margins often activate outside the lesion;
check the activation precision above."""
BLACK_BOX = """\
It is a black box: heat maps (Grad-CAM) show where its score reacts, not why."""


def write_model_card(run: Run, evaluation: Evaluation | None = None) -> Path:
    """Write MODEL_CARD.md into the run folder and return its path.

    A packed model keeps the card that it came with: it tells of data and results that are not here.
    """
    if run.package is not None and (run.folder / CARD).is_file():
        return run.folder / CARD
    results = evaluation if evaluation is not None else read_evaluation(run.folder)
    facts = run_facts(run)
    parts = [
        f"# {printable(run.name)}",
        summary(run),
        "## Intended use\n\n" + USE,
        "## Training data\n\n" + _data(run, facts),
        "## Figures\n\n" + _figures(run, results),
        "## Limits\n\n" + _bullets(_limits(run)),
        "## How it was made\n\n" + _bullets(_making(run, facts)),
        differences_section(run),
        "## How to cite\n\n" + f"{paper(run)}.\n\nSoftware: {_software(facts)}.",
    ]
    return run.folder.write_text(CARD, markdown_text("\n\n".join(parts)) + "\n")


def _limits(run: Run) -> list[str]:
    """What the model cannot do, one text per limit."""
    if not run.prototypes:
        return [KNOWN_CLASSES, SAME_DATA, BLACK_BOX]
    return [KNOWN_CLASSES, SAME_DATA, RESEMBLANCE, *([INDISTINCT] if margins(run) else [])]


def _bullets(texts: Sequence[str]) -> str:
    """A Markdown list; further lines of a text are indented."""
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts)


def _data(run: Run, facts: Provenance) -> str:
    counts = facts.counts
    if not counts:
        return "Not recorded."
    splits = [name for name in SPLITS if counts.get(name)]
    rows = [
        [name, *(str(counts[split].get(name, 0)) for split in splits)]
        for name in run.config.data.classes
    ]
    source = f"Images of each class, from the manifest `{printable(facts.manifest) or 'unknown'}`:"
    return source + "\n\n" + markdown_table(["class", *splits], rows)


def _figures(run: Run, results: Evaluation | None) -> str:
    if results is None:
        return f"Not evaluated yet: `protopyramid evaluate {run.name}`."
    rows = _auroc_rows(run, results)
    rows.append(["accuracy", figure_text(results.accuracy, results.accuracy_ci95)])
    precision = results.activation_precision
    for scale, found in (("fine", precision.fine), ("lesion", precision.lesion)):
        if found.mean is not None:
            text = f"{figure_text(found.mean, found.ci95)}; chance {figure_text(found.chance)}"
            rows.append([f"activation precision, {scale}", text])
    leaked = "**Leaked: measured on images of training.**\n\n" if results.leaked else ""
    head = f"On the {results.split} split ({results.n} images)"
    table = markdown_table(["figure", "value"], rows)
    return f"{leaked}{head}, 95 % intervals in brackets:\n\n{table}{_auroc_note(run)}"


def _auroc_rows(run: Run, results: Evaluation) -> list[list[str]]:
    """The AUROC of each class, their mean without the negative class, and that with it."""
    auroc, negative = results.auroc, run.config.data.negative_class
    rows = [
        [f"AUROC, {name}", figure_text(value, auroc.ci95_per_class.get(name))]
        for name, value in auroc.per_class.items()
    ]
    without = f"AUROC, mean without {negative}" if negative else "AUROC, mean"
    rows.append([without, figure_text(auroc.mean, auroc.ci95)])
    if negative:
        together = auroc.with_negative
        rows.append([f"AUROC, mean with {negative}", figure_text(together.mean, together.ci95)])
    return rows


def _auroc_note(run: Run) -> str:
    negative = run.config.data.negative_class
    if not negative:
        return ""
    return (
        f"\n\nThe AUROC of a class and the mean without {negative} leave out images of the class "
        f"{negative}: they say how well the other classes are told apart. The mean with {negative} "
        "counts all images and all classes."
    )


def _making(run: Run, facts: Provenance) -> list[str]:
    backbone = run.config.model.backbone
    tta = run.config.model.tta
    seen = f"; test-time augmentation with {tta_text(tta)}" if tta > 1 else ""
    return [
        f"system {run.system_title} (`{run.config.system}`), made by {_software(facts)}, "
        f"seed {run.config.train.seed}",
        f"backbone {backbone.name}, width {backbone.width}, started from {_start(run, facts)}; "
        f"input {run.config.data.image_size} px{seen}",
        f"{len(run.prototypes)} prototypes, listed in `prototypes.json` with their source images",
        *edit_history(run),
        "every setting is in `config.toml`",
    ]


def _start(run: Run, facts: Provenance) -> str:
    """The weights that training started from, as recorded; older runs did not record them."""
    start = facts.backbone or run.config.model.backbone.weights or RANDOM
    if start == RANDOM:
        return "random weights"
    kind, _, name = start.partition(" ")
    return f"the backbone of the run `{name}`" if kind == "run" and name else f"`{start}`"


def differences_section(run: Run) -> str:
    """What is not as in the published system, computed from the settings, under its heading."""
    rows = [[f"`{key}`", paper, own] for key, paper, own in difference_rows(run)]
    text = f"## {difference_title(run)}\n\n{difference_words(run)}"
    header = ["setting", "paper", "this run"]
    return f"{text}\n\n{markdown_table(header, rows, words=True)}" if rows else text


def _software(facts: Provenance) -> str:
    """The software that made the run, which may be another version than the one that writes this."""
    if facts.software is None:
        return "protopyramid (version not recorded)"
    return f"{facts.software.name} {facts.software.version}"
