"""From an explanation to what its figure shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from protopyramid.explain.explanation import Explanation, PrototypePart
from protopyramid.explain.saliency import grad_cam
from protopyramid.figures.case_figure import CaseRow, CaseView
from protopyramid.figures.drawing import peak_box
from protopyramid.figures.layouts import BlackBoxView
from protopyramid.inference.batches import device_of, model_input
from protopyramid.prototypes.cases import Case, case_book, from_picture


def case_view(explanation: Explanation, top: int, mask: NDArray[Any] | None = None) -> CaseView:
    """The strongest prototypes as rows, and what the others add."""
    run = explanation.run
    parts = explanation.strongest(top)
    cases = case_book(run).cases(run.model, [part.index for part in parts])
    shown = {part.index for part in parts}
    others = [part for part in explanation.prototypes if part.index not in shown]
    return CaseView(
        image_name=explanation.image,
        image=explanation.picture,
        predicted=explanation.predicted,
        logits=explanation.logits,
        probabilities=explanation.probabilities,
        rows=[_row(explanation, part, cases[part.index]) for part in parts],
        others=len(others),
        shown_sums=_sums(parts, explanation),
        other_sums=_sums(others, explanation),
        mask=mask,
        unlike=bool(explanation.unlike_training),
        tta=run.config.model.tta,
    )


def black_box_view(explanation: Explanation, mask: NDArray[Any] | None = None) -> BlackBoxView:
    """Grad-CAM of the predicted class, for a model without prototypes."""
    run = explanation.run
    target = torch.tensor([run.config.data.classes.index(explanation.predicted)])
    images = model_input(
        from_picture(explanation.picture)[None], run.config.data, device_of(run.model)
    )
    return BlackBoxView(
        image_name=explanation.image,
        image=explanation.picture,
        predicted=explanation.predicted,
        logits=explanation.logits,
        probabilities=explanation.probabilities,
        saliency=grad_cam(run.model, images, target)[0].cpu().numpy(),
        mask=mask,
        unlike=bool(explanation.unlike_training),
    )


def _row(explanation: Explanation, part: PrototypePart, case: Case) -> CaseRow:
    activation = explanation.activation(part.index)
    return CaseRow(
        index=part.index,
        class_name=part.class_name,
        level=part.level,
        activation=activation,
        box=peak_box(activation),
        case_name=case.record.image,
        case_image=case.image,
        case_activation=case.activation,
        case_box=peak_box(case.activation),
        similarity=part.similarity,
        weight=part.weights[explanation.predicted],
        contribution=part.contributions[explanation.predicted],
    )


def _sums(parts: Sequence[PrototypePart], explanation: Explanation) -> dict[str, float]:
    return {
        name: math.fsum(part.contributions[name] for part in parts) for name in explanation.logits
    }
