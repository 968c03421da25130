"""The plots of an evaluation as PNG bytes: confusion matrix, ROC curves, reliability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from protopyramid.figures.drawing import figure_bytes
from protopyramid.metrics.auroc import Auroc, roc_curve
from protopyramid.metrics.calibration import Calibration

Array = NDArray[np.float64]

# Okabe and Ito's colours, distinct for colour-blind readers, each with its own line style for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", "-.", ":")


class Plotted(Protocol):
    """What is drawn of an evaluation (evaluation/results.py)."""

    @property
    def title(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def leaked(self) -> bool: ...
    @property
    def n(self) -> int: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def confusion_matrix(self) -> Sequence[Sequence[int]]: ...
    @property
    def confusion_matrix_normalised(self) -> Sequence[Sequence[float | None]]: ...
    @property
    def auroc(self) -> Auroc: ...
    @property
    def calibration(self) -> Calibration: ...


def draw_all(result: Plotted, probabilities: Array, labels: NDArray[np.int64]) -> dict[str, bytes]:
    """All plots of an evaluation, {name: PNG}."""
    return {
        "confusion": draw_confusion(result),
        "roc": draw_roc(result, probabilities, labels),
        "reliability": draw_reliability(result),
    }


def draw_confusion(result: Plotted) -> bytes:
    """The confusion matrix: counts, with the share of the row as colour."""
    classes, counts = result.classes, result.confusion_matrix
    shares = result.confusion_matrix_normalised
    side = 1.8 + 0.75 * len(classes)
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    axes = figure.add_subplot()
    values = np.array([[0.0 if value is None else value for value in row] for row in shares])
    picture = axes.imshow(values, cmap="cividis", vmin=0, vmax=1)
    for row, column in np.ndindex(values.shape):
        share = shares[row][column]
        text = f"{counts[row][column]}" + ("" if share is None else f"\n{share:.0%}")
        colour = "white" if values[row, column] < 0.6 else "black"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(classes)), classes, rotation=30, ha="right")
    axes.set_yticks(range(len(classes)), classes)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(_title(result, f"{result.n} images, accuracy {result.accuracy:.2f}"))
    figure.colorbar(picture, ax=axes, label="share of the true class", shrink=0.8)
    return figure_bytes(figure)


def draw_roc(result: Plotted, probabilities: Array, labels: NDArray[np.int64]) -> bytes:
    """One-vs-rest ROC curves of the margin classes, with AUROC and interval."""
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    classes, auroc = result.classes, result.auroc
    margins = [number for number, name in enumerate(classes) if name in auroc.per_class]
    rows = np.isin(labels, margins)
    for place, number in enumerate(margins):
        name = classes[number]
        curve = roc_curve(probabilities[rows, number], labels[rows] == number)
        if curve is None:
            continue
        value, limits = auroc.per_class[name], auroc.ci95_per_class[name]
        between = "" if limits is None else f" [{limits[0]:.2f}, {limits[1]:.2f}]"
        axes.plot(
            *curve,
            color=COLOURS[place % len(COLOURS)],
            linestyle=STYLES[place % len(STYLES)],
            linewidth=2,
            label=f"{name} {value:.2f}{between}",
        )
    axes.set(xlabel="1 - specificity", ylabel="sensitivity", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.set_aspect("equal")
    left_out = [name for name in classes if name not in auroc.per_class]
    note = f" ({', '.join(left_out)} left out)" if left_out else ""
    mean = "undefined" if auroc.mean is None else f"{auroc.mean:.2f}"
    axes.set_title(_title(result, f"mean AUROC {mean}{note}"))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title="each class against the others", loc="lower right", fontsize=8)
    return figure_bytes(figure)


def draw_reliability(result: Plotted) -> bytes:
    """Accuracy against confidence, and the number of images in each bin."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    bins = result.calibration.reliability
    filled = [entry for entry in bins if entry.count]
    upper.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="perfectly calibrated")
    upper.plot(
        [entry.confidence for entry in filled],
        [entry.accuracy for entry in filled],
        color=COLOURS[0],
        marker="o",
        label="this run",
    )
    upper.set(ylabel="share of correct predictions", xlim=(0, 1), ylim=(-0.02, 1.02))
    upper.legend(loc="upper left", fontsize=8)
    ece = result.calibration.ece
    upper.set_title(_title(result, f"expected calibration error {ece:.3f}"))
    middles = [(entry.low + entry.high) / 2 for entry in bins]
    lower.bar(middles, [entry.count for entry in bins], width=0.9 / len(bins), color="0.5")
    lower.set(xlabel="confidence (highest probability)", ylabel="images")
    return figure_bytes(figure)


def _title(result: Plotted, what: str) -> str:
    leaked = " (LEAKED)" if result.leaked else ""
    return f"{result.title}, {result.split}{leaked}\n{what}"
