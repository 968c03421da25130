"""report.html of a run: one self-contained page for readers who have not seen the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protopyramid import __version__
from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import SPLITS, Sample
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.explanations.explanation import explain_prepared
from protopyramid.explanations.ranking import RankedImage, best_and_worst, rank
from protopyramid.figures.curves import curves_figure
from protopyramid.figures.drawing import COLOUR_MAP
from protopyramid.figures.prototype_figures import gallery_figure
from protopyramid.figures.text import counted, figure_text, listed, percent
from protopyramid.metrics.auroc import Auroc
from protopyramid.metrics.localisation import PairMean, PairMeanWithChance
from protopyramid.reports import html as page
from protopyramid.reports.facts import (
    difference_rows,
    difference_title,
    difference_words,
    margins,
    paper,
    run_facts,
    summary,
)
from protopyramid.reports.faithfulness import faithfulness_section
from protopyramid.reports.gallery import gallery_items, idle_prototypes
from protopyramid.reports.html import Cell, Html
from protopyramid.reports.training_curves import training_plots
from protopyramid.runs import layout
from protopyramid.runs.provenance import Provenance
from protopyramid.runs.run import Run

__all__ = [
    "CARD",
    "REPORT",
    "figure_text",
    "margins",
    "run_facts",
    "summary",
    "training_plots",
    "write_report",
]

CASES = 2  # best and worst explained images shown, each
ROWS = 3  # prototypes shown of each
REPORT, CARD = layout.REPORT, layout.CARD


def write_report(
    run: Run,
    evaluation: Evaluation | None = None,
    samples: Sequence[Sample] | None = None,
    colour_map: str = COLOUR_MAP,
) -> Path:
    """Write report.html into the run folder and return its path.

    `evaluation` is by default the stored one of the test split, if there is one; `samples`, the images of
    that split, give the best and worst explained cases.
    """
    results = evaluation if evaluation is not None else read_evaluation(run.folder)
    facts = run_facts(run)
    sections = [
        _opening(run, results, facts),
        _data(run, facts),
        _results(run, results),
        _where_it_looks(run, results),
        faithfulness_section(run),
        _cases(run, samples, colour_map),
        _prototypes(run, colour_map),
        _health(results),
        _training(run),
        _differences(run),
        _closing(run),
    ]
    content = page.page(f"{run.name}: {run.system_title}", [part for part in sections if part])
    return run.folder.write_text(REPORT, content)


# -- what it is ----------------------------------------------------------------------------------
def _opening(run: Run, results: Evaluation | None, facts: Provenance) -> str:
    size = run.config.data.image_size
    subtitle = f"Report of a trained model: {run.system_title}, images of {size} × {size} pixels"
    return (
        f"<header><h1>{page.html_of(run.name)}</h1>"
        + page.paragraph(subtitle, "muted")
        + page.paragraph(summary(run))
        + page.cards(_headline(run, results, facts))
        + page.paragraph("For research only. Not a medical device.", "note warn")
        + "</header>"
    )


def _headline(run: Run, results: Evaluation | None, facts: Provenance) -> list[tuple[str, str]]:
    """The few figures that come first, each with its meaning."""
    items = []
    if results is not None:
        split, negative = results.split, run.config.data.negative_class
        without = f", {negative} images left out" if negative else ""
        words = f"mean AUROC on {split}{without} (0.5 = chance)"
        items.append((figure_text(results.auroc.mean), words))
        if negative:
            value = results.auroc.with_negative.mean
            items.append((figure_text(value), f"mean AUROC with {negative} images included"))
        items.append((figure_text(results.accuracy), f"accuracy on {split}, all classes"))
    if run.prototypes:
        items.append((str(len(run.prototypes)), "prototypes, each a part of a training image"))
    training = sum(facts.counts.get("train", {}).values())
    if training:
        items.append((str(training), "training images"))
    return items


def _data(run: Run, facts: Provenance) -> str:
    counts = facts.counts
    splits = [name for name in SPLITS if counts.get(name)]
    if not splits:
        return ""
    rows: list[list[Cell]] = [
        [name, *(str(counts[split].get(name, 0)) for split in splits)]
        for name in run.config.data.classes
    ]
    rows.append(["all", *(str(sum(counts[split].values())) for split in splits)])
    text = (
        "Number of images of each class. The model learns from train, the best checkpoint is chosen on "
        "validation, and test is used only for the final evaluation. Source: "
        f"{facts.manifest or 'unknown manifest'}."
    )
    return page.section("Data", page.paragraph(text), page.table(["class", *splits], rows, True))


# -- how good it is ------------------------------------------------------------------------------
def _results(run: Run, results: Evaluation | None) -> str:
    if results is None:
        command = f"protopyramid evaluate {page.html_of(str(run.name))}"
        hint = Html(f"Not evaluated yet. Run <code>{command}</code>.")
        return page.section("Results", page.paragraph(hint, "note"))
    accuracy = figure_text(results.accuracy, results.accuracy_ci95)
    ece = figure_text(results.calibration.ece)
    below = (
        f"Accuracy {accuracy}. Shade: share of the true class. "
        f"Expected calibration error {ece} (0 = probabilities can be taken at face value)."
    )
    return page.section(
        f"Results on {results.split}",
        _warnings(results),
        page.paragraph(_auroc_words(run, results)),
        _results_table(run, results),
        "<h3>Confusion matrix</h3>",
        page.matrix(run.config.data.classes, results.confusion_matrix),
        page.paragraph(below, "muted"),
    )


def _results_table(run: Run, results: Evaluation) -> str:
    """AUROC of every class, without the negative class and with it, sensitivity and specificity."""
    auroc, negative = results.auroc, run.config.data.negative_class
    kinds: dict[str, Auroc] = {"AUROC": auroc}
    if negative:
        kinds = {
            f"AUROC, {negative} left out": auroc,
            f"AUROC, {negative} included": auroc.with_negative,
        }
    rows: list[list[Cell]] = [
        [
            name,
            str(results.per_class_n.get(name, 0)),
            *(
                figure_text(each.per_class.get(name), each.ci95_per_class.get(name))
                for each in kinds.values()
            ),
            figure_text(results.sensitivity.get(name)),
            figure_text(results.specificity.get(name)),
        ]
        for name in run.config.data.classes
    ]
    means = (figure_text(each.mean, each.ci95) for each in kinds.values())
    rows.append(["mean / all", str(results.n), *means, "", ""])
    header = ["class", "images", *kinds, "sensitivity", "specificity"]
    return page.table(header, rows, True)


def _warnings(results: Evaluation) -> str:
    texts = list(results.warnings)
    if results.leaked:
        texts.insert(
            0, "LEAKED: the model was trained on some of these images; do not use these figures."
        )
    return "".join(page.paragraph(text, "note warn") for text in texts)


def _auroc_words(run: Run, results: Evaluation) -> str:
    negative = run.config.data.negative_class
    method = f" (bootstrap over {results.bootstrap.unit}s)"
    words = (
        "AUROC is the chance that an image of the class gets a higher probability for it than an image of "
        f"another class: 0.5 is guessing, 1 is perfect. In brackets: 95% intervals{method}."
    )
    if not negative:
        return words
    others = listed([name for name in run.config.data.classes if name != negative], "and")
    return (
        f"{words} As in the paper, the first AUROC is among images of {others} only, with {negative} "
        f"images left out; the second counts {negative} images as well."
    )


# -- where it looks ------------------------------------------------------------------------------
def _where_it_looks(run: Run, results: Evaluation | None) -> str:
    if not run.prototypes or results is None:
        return ""
    precision, area = results.activation_precision, results.activation_area
    rows = _precision_rows(run, precision.fine, area, "margin annotation")
    rows += _precision_rows(run, precision.lesion, area, "lesion box")
    if not rows:
        text = "This split has no annotations, so it is unknown whether the prototypes look at the lesion."
        return page.section("Where it looks", page.paragraph(text, "note"))
    words = (
        "Activation precision: the share of a prototype's region (the strongest 5% of its map) that lies "
        "inside the annotation. The black line marks chance: the share of the image that is annotated. "
        "Size: the share of the image above half of the map's range."
    )
    header = ["level, compared with", "precision", "", "chance", "size"]
    return page.section("Where it looks", page.paragraph(words), page.table(header, rows))


def _precision_rows(
    run: Run, precision: PairMeanWithChance, area: PairMean, annotation: str
) -> list[list[Cell]]:
    """One row per level whose precision is known, and one for all levels."""
    chance = precision.chance
    found: list[tuple[str, float | None, float | None]] = [
        (f"level {level}", precision.per_level.get(level), area.per_level.get(level))
        for level in map(str, sorted({record.level for record in run.prototypes}))
    ]
    found.append(("all levels", precision.mean, area.mean))
    return [
        [
            f"{where}, {annotation}",
            figure_text(value),
            page.bar(value, chance),
            figure_text(chance),
            figure_text(size),
        ]
        for where, value, size in found
        if value is not None
    ]


# -- cases ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CaseGroup:
    """A heading above some cases, what they have in common, and what to say if there are none."""

    title: str
    words: str
    none: str


WITH_ANNOTATIONS = (
    CaseGroup(
        "Best explained: right for the right reason",
        "The prediction is right, and the strongest prototypes look at the annotated part: at least half "
        "of their regions lies inside it, corrected for chance.",
        "No case qualifies: the model is nowhere both right and looking mainly at the annotated part.",
    ),
    CaseGroup(
        "Worst explained",
        "The prediction is wrong, or right although the prototypes look elsewhere.",
        "No case qualifies: every prediction is right for the right reason.",
    ),
)
WITHOUT_ANNOTATIONS = (
    CaseGroup(
        "Right, with the highest probability",
        "There are no annotations, so it is unknown whether the model looks at the right part.",
        "No prediction is right.",
    ),
    CaseGroup(
        "Wrong, with the lowest probability of the true class",
        "Cases to learn from: what did the model mistake for what?",
        "No prediction is wrong.",
    ),
)


def _cases(run: Run, samples: Sequence[Sample] | None, colour_map: str) -> str:
    if not samples:
        return ""
    ranked = rank(run, samples)
    annotated = any(each.inside is not None for each in ranked)
    groups = WITH_ANNOTATIONS if annotated else WITHOUT_ANNOTATIONS
    parts = []
    for group, chosen in zip(groups, best_and_worst(ranked, CASES), strict=True):
        parts += [f"<h3>{page.html_of(group.title)}</h3>"]
        parts += [page.paragraph(group.words if chosen else group.none, "" if chosen else "note")]
        parts += [_case(run, each, colour_map) for each in chosen]
    return page.section("Explained cases", *parts)


def _case(run: Run, ranked: RankedImage, colour_map: str) -> str:
    prepared = prepare_sample(ranked.sample, run.config.data)
    mask = None if prepared.mask is None else prepared.mask.numpy()
    explanation = explain_prepared(run, prepared.image, ranked.sample.name).outlined(top=ROWS)
    figure = explanation.sheet(ROWS, colour_map, mask)
    return page.picture(figure, f"explanation of {ranked.sample.name}", case_caption(ranked))


def case_caption(ranked: RankedImage) -> str:
    """The caption of an explained case: truth, prediction, and where the model looks."""
    verdict = "right" if ranked.right else "wrong"
    words = f"True class: {ranked.sample.label}. Predicted: {ranked.predicted} ({verdict})."
    if ranked.inside is None or ranked.chance is None:
        return words
    return (
        f"{words} Of the regions of its strongest prototypes, {percent(ranked.inside)} lies inside the "
        f"annotation (chance: {percent(ranked.chance)})."
    )


# -- how it was made -----------------------------------------------------------------------------
def _prototypes(run: Run, colour_map: str) -> str:
    if not run.prototypes:
        return ""
    items = gallery_items(run)
    # One picture per class: each fits on a printed page.
    pictures = [
        page.picture(
            gallery_figure(
                items,
                [name],
                f"Prototypes of {name}",
                colour_map,
                looked_at=idle_prototypes(run)[1],
            ),
            f"prototypes of {name} by level",
        )
        for name in run.config.data.classes
        if any(item.class_name == name for item in items)
    ]
    words = (
        "Every prototype is a part of one training image. Level 2 compares fine detail such as an edge or "
        "a spicule, level 5 a large part of the lesion. "
    )
    return page.section("Prototypes", page.paragraph(words + _strangers(run)), *pictures)


def _strangers(run: Run) -> str:
    """How many prototypes come from images of another class than their own."""
    others = sum(record.other_label is not None for record in run.prototypes)
    if not others:
        return ""
    return (
        f"{others} of {counted(len(run.prototypes), 'prototype')} come from a training image of another "
        "class (✕ with its label): projection searched the images of all classes."
    )


def _health(results: Evaluation | None) -> str:
    """What is wrong with the prototypes; nothing where nothing is."""
    health = None if results is None else results.health
    if health is None or not health.findings:
        return ""
    found = counted(len(health.findings), "finding")
    words = f"{found} on {health.prototypes} prototypes. Look at these first:"
    items = "".join(f"<li>{page.html_of(finding)}</li>" for finding in health.findings)
    return page.section("Health of the prototypes", page.paragraph(words), f"<ul>{items}</ul>")


def _training(run: Run) -> str:
    plots = training_plots(run.folder.read_lines(layout.METRICS))
    if not plots:
        return ""
    picture = page.picture(
        curves_figure(plots), "loss and validation by epoch", kind="png", dpi=110
    )
    words = (
        "Left: each term of the loss relative to its first epoch. Right: performance on validation. The "
        "saved model is the best on validation among those just projected, whose prototypes are all "
        "patches of training images."
    )
    return page.section("Training", page.paragraph(words), picture)


def _differences(run: Run) -> str:
    """What is not as in the published system, computed from the settings."""
    rows: list[list[Cell]] = [list(row) for row in difference_rows(run)]
    words = page.paragraph(difference_words(run).replace("`", ""))
    table = page.table(["setting", "paper", "this run"], rows) if rows else ""
    return page.section(difference_title(run), words, table)


def _closing(run: Run) -> str:
    method = "Method" if not difference_rows(run) else "Method, with the differences above"
    return (
        f"<footer>{method}: {page.html_of(paper(run))}. Made with protopyramid {__version__}. All figures on "
        f"this page come from the run folder; see {layout.CARD} for intended use and limits.</footer>"
    )
