"""The plots are drawn for any result, however little it holds."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from protopyramid.figures import evaluation_plots as plots
from protopyramid.metrics.auroc import auroc_with_intervals
from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.metrics.calibration import calibration
from protopyramid.metrics.confusion import confusion_matrix, row_normalised
from protopyramid.metrics.softmax import softmax


def result_of(probabilities: np.ndarray, labels: np.ndarray, classes: list[str], negative: str):
    weights = resample_weights([str(i) for i in range(len(labels))], 20, 0)
    counts = confusion_matrix(labels, probabilities.argmax(1), len(classes))
    return SimpleNamespace(
        title="FPN-IAIA-BL",
        split="test",
        leaked=True,
        classes=classes,
        n=len(labels),
        accuracy=0.5,
        auroc=auroc_with_intervals(probabilities, labels, classes, negative, weights),
        confusion_matrix=counts.tolist(),
        confusion_matrix_normalised=row_normalised(counts),
        calibration=calibration(probabilities, labels),
    )


@pytest.mark.parametrize("present", [4, 1])
def test_plots_are_pictures(present: int) -> None:
    rng = np.random.default_rng(0)
    probabilities = softmax(rng.normal(size=(30, 4)))
    labels = rng.integers(0, present, 30)
    classes = ["circumscribed", "indistinct", "spiculated", "negative"]
    drawn = plots.draw_all(
        result_of(probabilities, labels, classes, "negative"), probabilities, labels
    )
    assert set(drawn) == {"confusion", "roc", "reliability"}
    for content in drawn.values():
        picture = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
        assert min(picture.shape) > 300 and picture.std() > 5


def test_many_classes_and_one_image_are_drawn() -> None:
    classes = [f"class {number}" for number in range(12)]
    probabilities = softmax(np.zeros((1, 12)))
    labels = np.array([3])
    assert plots.draw_all(result_of(probabilities, labels, classes, ""), probabilities, labels)
