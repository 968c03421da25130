"""report.html of a run: one self-contained page for a reader who has not seen the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protopyramid import __version__
from protopyramid.config.schema import MARGIN_CLASSES
from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Sample
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.explain.explanation import explain_prepared
from protopyramid.explain.ranking import Ranked, best_and_worst, rank
from protopyramid.figures.drawing import COLOUR_MAP
from protopyramid.figures.layouts import Curve, Plot, curves_figure, gallery_figure
from protopyramid.reports import html as page
from protopyramid.reports.gallery import gallery_items
from protopyramid.reports.html import Cell, Html
from protopyramid.runs import layout
from protopyramid.runs.run import Run

CASES = 2  # best and worst explained images shown, each
ROWS = 3  # prototypes shown of each
REPORT, CARD = layout.REPORT, layout.CARD
PAPER = (
    'Yang et al., "FPN-IAIA-BL: A Multi-Scale Interpretable Deep Learning Model for Classification '
    'of Mass Margins in Digital Mammography", CVPR Workshops 2024'
)


def write_report(
    run: Run,
    evaluation: Evaluation | None = None,
    samples: Sequence[Sample] | None = None,
    colour_map: str = COLOUR_MAP,
) -> Path:
    """Write report.html into the run folder and return its path.

    `evaluation` is the stored one of the test split unless given;
    `samples`, the images of that split, give the best and worst explained cases.
    """
    results = evaluation if evaluation is not None else read_evaluation(run.folder)
    facts = run_facts(run)
    sections = [
        _opening(run, results, facts),
        _data(run, facts),
        _results(run, results),
        _looking(run, results),
        _cases(run, samples, colour_map),
        _prototypes(run, colour_map),
        _health(results),
        _training(run),
        _closing(run),
    ]
    content = page.page(f"{run.name}: {run.config.system}", [part for part in sections if part])
    return run.folder.write_text(REPORT, content)


def run_facts(run: Run) -> Mapping[str, Any]:
    """What data.json says of the training data; nothing where it is missing."""
    if not (run.folder / layout.DATA).is_file():
        return {}
    facts: Mapping[str, Any] = run.folder.read_json(layout.DATA)
    return facts


def summary(run: Run) -> str:
    """What this model is, in two sentences."""
    classes = run.config.data.classes
    what = "mammogram patches by the margin of the mass" if margins(run) else "images"
    negative = run.config.data.negative_class
    called = [
        f"{name} (no mass)" if margins(run) and name == negative else name for name in classes
    ]
    names = ", ".join(called[:-1]) + f" or {called[-1]}"
    if not run.prototypes:
        return (
            f"This model sorts {what} into {names} with an ordinary neural network ({run.config.system}). "
            "It is a black box: it names no case behind its answer, and heat maps show only where its "
            "score reacts to the image."
        )
    levels = sorted({record.level for record in run.prototypes})
    scale = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
    return (
        f"This model ({run.config.system}) sorts {what} into {names} by comparing parts of the image with "
        f"parts of known training images, its {len(run.prototypes)} prototypes. Every answer is a sum of "
        f"“this part looks like that part of a known case”, on {scale} "
        "(2 = fine detail, 5 = coarse), so that each step can be checked by eye."
    )


def margins(run: Run) -> bool:
    """Whether the classes are mass margins."""
    return set(run.config.data.classes) <= set(MARGIN_CLASSES)


def figure_text(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A figure with its interval.

    >>> figure_text(0.8125, [0.7, 0.9]), figure_text(None)
    ('0.81 (0.70 to 0.90)', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{value:.2f}{between}"


def _get(content: Any, *keys: str) -> Any:
    """A nested value, or None where a key is missing."""
    for key in keys:
        if not isinstance(content, Mapping):
            return None
        content = content.get(key)
    return content


def _opening(run: Run, results: Evaluation | None, facts: Mapping[str, Any]) -> str:
    counts = _get(facts, "counts", "train") or {}
    items = []
    if results is not None:
        split = results.split
        items.append((figure_text(results.auroc.mean), f"mean AUROC on {split} (0.5 = chance)"))
        items.append((figure_text(results.accuracy), f"accuracy on {split}"))
    if run.prototypes:
        items.append((str(len(run.prototypes)), "prototypes, each a part of a training image"))
    if counts:
        items.append((str(sum(counts.values())), "training images"))
    return (
        f"<header><h1>{page.html_of(run.name)}</h1>"
        + page.paragraph(_subtitle(run), "muted")
        + page.paragraph(summary(run))
        + page.cards(items)
        + page.paragraph("For research only. Not a medical device.", "note warn")
        + "</header>"
    )


def _subtitle(run: Run) -> str:
    size = run.config.data.image_size
    return f"Report of a trained model: {run.config.system}, images of {size} × {size} pixels"


def _data(run: Run, facts: Mapping[str, Any]) -> str:
    counts: Mapping[str, Mapping[str, int]] = _get(facts, "counts") or {}
    splits = [name for name in ("train", "validation", "test") if counts.get(name)]
    if not splits:
        return ""
    rows: list[list[Cell]] = [
        [name, *(str(counts[split].get(name, 0)) for split in splits)]
        for name in run.config.data.classes
    ]
    rows.append(["all", *(str(sum(counts[split].values())) for split in splits)])
    text = (
        "Images of each class. The model learns from train and is chosen on validation; it meets test only "
        f"when it is judged. Source: {facts.get('manifest', 'unknown manifest')}."
    )
    return page.section("Data", page.paragraph(text), page.table(["class", *splits], rows, True))


def _results(run: Run, results: Evaluation | None) -> str:
    if results is None:
        hint = Html(
            f"Not evaluated yet: <code>protopyramid evaluate {page.html_of(str(run.name))}</code>"
        )
        return page.section("Results", page.paragraph(hint, "note"))
    auroc = results.auroc
    rows: list[list[Cell]] = []
    for name in run.config.data.classes:
        rows.append(
            [
                name,
                str(results.per_class_n.get(name, 0)),
                figure_text(auroc.per_class.get(name), auroc.ci95_per_class.get(name)),
                figure_text(results.sensitivity.get(name)),
                figure_text(results.specificity.get(name)),
            ]
        )
    rows.append(["mean / all", str(results.n), figure_text(auroc.mean, auroc.ci95), "", ""])
    header = ["class", "images", "AUROC (95 % interval)", "sensitivity", "specificity"]
    parts = [_warnings(results), page.paragraph(_auroc_words(run, results))]
    parts += [page.table(header, rows, True), "<h3>Confusion matrix</h3>"]
    parts += [page.matrix(run.config.data.classes, results.confusion_matrix)]
    accuracy = figure_text(results.accuracy, results.accuracy_ci95)
    ece = figure_text(results.calibration.ece)
    below = (
        f"Accuracy {accuracy}. Shade: share of the true class. Calibration error {ece} (0 = none)."
    )
    parts.append(page.paragraph(below, "muted"))
    return page.section(f"Results on {results.split}", *parts)


def _warnings(results: Evaluation) -> str:
    texts = list(results.warnings)
    if results.leaked:
        texts.insert(
            0, "LEAKED: the model was trained on some of these images; do not use these results."
        )
    return "".join(page.paragraph(text, "note warn") for text in texts)


def _auroc_words(run: Run, results: Evaluation) -> str:
    negative = run.config.data.negative_class
    apart = f" Images of the class {negative} are left out of AUROC." if negative else ""
    by = f", from bootstrap resamples of {results.bootstrap.unit}s"
    return (
        "AUROC is the chance that an image of the class gets a higher score for it than an image of another "
        f"class: 0.5 is guessing, 1 is perfect. Intervals are 95 %{by}.{apart}"
    )


def _looking(run: Run, results: Evaluation | None) -> str:
    if not run.prototypes or results is None:
        return ""
    rows: list[list[Cell]] = []
    levels = sorted({record.level for record in run.prototypes})
    precision, areas = results.activation_precision, results.activation_area
    for found, what in ((precision.fine, "margin annotation"), (precision.lesion, "lesion box")):
        for level in [*map(str, levels), None]:
            value = found.mean if level is None else found.per_level.get(level)
            if found.mean is None or value is None:
                continue
            area = areas.mean if level is None else areas.per_level.get(level)
            where = "all levels" if level is None else f"level {level}"
            chance = found.chance
            shown: list[Cell] = [figure_text(value), page.bar(value, chance), figure_text(chance)]
            rows.append([f"{where}, {what}", *shown, figure_text(area)])
    if not rows:
        text = "No annotations in this split, so that nothing can be said of where the prototypes look."
        return page.section("Where it looks", page.paragraph(text, "note"))
    words = (
        "Activation precision: of the strongest 5 % of a prototype's map, the share inside the annotation. "
        "The black line is chance: what a map thrown at random would reach. Size: share of the image above "
        "half of the map's range."
    )
    header = ["level, judged by", "precision", "", "chance", "size"]
    return page.section("Where it looks", page.paragraph(words), page.table(header, rows))


def _cases(run: Run, samples: Sequence[Sample] | None, colour_map: str) -> str:
    if not samples:
        return ""
    best, worst = best_and_worst(rank(run, samples), CASES)
    words = (
        "The best are right for the right reason: a high probability of the true class, and prototypes that "
        "look at the annotated part. The worst are wrong, or right by looking elsewhere."
        if any(each.inside is not None for each in best)
        else "The best have the highest probability of the true class, the worst the lowest."
    )
    parts = [page.paragraph(words)]
    for title, chosen in (("Best explained", best), ("Worst explained", worst)):
        if chosen:
            parts.append(f"<h3>{title}</h3>")
            parts += [_case(run, each, colour_map) for each in chosen]
    return page.section("Explained test cases", *parts)


def _case(run: Run, each: Ranked, colour_map: str) -> str:
    prepared = prepare_sample(each.sample, run.config.data)
    mask = None if prepared.mask is None else prepared.mask.numpy()
    explanation = explain_prepared(run, prepared.image, each.sample.name)
    right = "rightly" if each.predicted == each.sample.label else "wrongly"
    inside = (
        "" if each.inside is None else f"; {each.inside:.0%} of its regions inside the annotation"
    )
    caption = f"True class {each.sample.label}, {right} called {each.predicted}{inside}."
    figure = explanation.figure(ROWS, colour_map, mask)
    return page.picture(figure, f"explanation of {each.sample.name}", caption)


def _prototypes(run: Run, colour_map: str) -> str:
    if not run.prototypes:
        return ""
    items = gallery_items(run)
    # A picture for each class: each fits on a printed page.
    pictures = [
        page.picture(
            gallery_figure(items, [name], f"Prototypes of {name}", colour_map),
            f"prototypes of {name} by level",
        )
        for name in run.config.data.classes
        if any(item.class_name == name for item in items)
    ]
    words = (
        "Every prototype is a part of one training image. Level 2 sees fine detail such as an edge or a "
        "spicule, level 5 a large part of the lesion."
    )
    return page.section("Prototypes", page.paragraph(words), *pictures)


def _health(results: Evaluation | None) -> str:
    """What is wrong with the prototypes; nothing where nothing is."""
    health = None if results is None else results.health
    if health is None or not health.findings:
        return ""
    words = (
        f"{len(health.findings)} findings on {health.prototypes} prototypes. Look at these first:"
    )
    items = "".join(f"<li>{page.html_of(finding)}</li>" for finding in health.findings)
    return page.section("Health of the prototypes", page.paragraph(words), f"<ul>{items}</ul>")


def training_plots(records: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """Plots of a metrics.jsonl: the terms of the loss, and validation."""
    epochs = [record for record in records if record.get("kind") == "epoch"]
    if not epochs:
        return []
    x = [float(record["epoch"]) for record in epochs]
    terms = list(dict.fromkeys(term for record in epochs for term in record.get("losses", {})))
    first = {term: _first(epochs, "losses", term) for term in terms}
    losses = [
        Curve(
            term.replace("_", " "),
            x,
            [_ratio(_get(r, "losses", term), first[term]) for r in epochs],
        )
        for term in terms
    ]
    judged = [
        Curve(word, x, [_number(_get(record, "validation", key)) for record in epochs])
        for key, word in (("auroc", "AUROC"), ("accuracy", "accuracy"))
    ]
    marks = _stage_marks(epochs)
    return [
        Plot("Loss terms (first epoch = ±1)", losses, None, marks),
        Plot("Validation", judged, (0.0, 1.02), marks),
    ]


def _stage_marks(epochs: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Where a stage of another name begins."""
    marks, last = [], None
    for record in epochs:
        if record.get("stage") != last:
            last = record.get("stage")
            marks.append((float(record["epoch"]) - 0.5, f" {last}"))
    return marks


def _first(epochs: Sequence[Mapping[str, Any]], *keys: str) -> float:
    values = (_number(_get(record, *keys)) for record in epochs)
    return next((abs(value) for value in values if math.isfinite(value) and value), 1.0)


def _ratio(value: Any, first: float) -> float:
    return _number(value) / first


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _training(run: Run) -> str:
    plots = training_plots(run.folder.read_lines(layout.METRICS))
    if not plots:
        return ""
    picture = page.picture(
        curves_figure(plots), "loss and validation by epoch", kind="png", dpi=110
    )
    words = (
        "Each term of the loss relative to its first epoch, and how well the model does on validation. The "
        "saved model is the best on validation after a projection, when every prototype is a training patch."
    )
    return page.section("Training", page.paragraph(words), picture)


def _closing(run: Run) -> str:
    return (
        f"<footer>Method: {page.html_of(PAPER)}. Made by protopyramid {__version__}. All figures of this "
        "page come from the run folder; see MODEL_CARD.md for intended use and limits.</footer>"
    )
