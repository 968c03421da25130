"""The explanation of one image: every class score as a sum over prototypes, with the cases behind them.

Example:
    >>> import protopyramid as pp                                          # doctest: +SKIP
    >>> explanation = pp.load_run("runs/demo").explain("lesion.png")       # doctest: +SKIP
    >>> explanation.predicted, explanation.strongest(1)[0].class_name      # doctest: +SKIP
    ('spiculated', 'spiculated')
    >>> explanation.save("why.png")                                        # doctest: +SKIP
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.images import prepare, read_image
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.ood import limits_for, ood_features
from protopyramid.metrics.softmax import softmax
from protopyramid.model.activation import activation_maps, region_box, strongest_region
from protopyramid.model.network import Evidence
from protopyramid.prototypes.cases import (
    Picture,
    layer_of,
    prototype_map,
    to_picture,
    upsampled,
)
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOP = 5
COLOUR_MAP = "inferno"  # as in drawing.py, which is imported only when something is drawn

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class PrototypePart:
    """What one prototype has to do with the image.

    `similarity` is the pooled score that multiplies the weights; contributions = similarity x weights;
    `box` encloses the strongest 5 % of its activation map on this image, as fractions of the model's
    input.
    """

    index: int
    class_name: str
    level: int
    similarity: float
    weights: dict[str, float]
    contributions: dict[str, float]
    box: Box

    def to_json(self) -> dict[str, Any]:
        """The part as it stands in an explanation's JSON."""
        return {
            "index": self.index,
            "class": self.class_name,
            "level": self.level,
            "similarity": self.similarity,
            "weights": self.weights,
            "contributions": self.contributions,
            "box": list(self.box),
        }


@dataclass(frozen=True)
class Explanation:
    """Why the model says what it says of one image.

    `logits` are the sums of the contributions of all prototypes (of a black box: the model's own).
    `picture` is the image as the model saw it, (S, S) or (S, S, 3) in [0, 1]. `unlike_training`: whether
    it is unlike the training data; None when the run cannot tell (no thresholds.json).
    """

    image: str
    predicted: str
    logits: dict[str, float]
    probabilities: dict[str, float]
    prototypes: list[PrototypePart]
    picture: Picture = field(repr=False)
    run: Run = field(repr=False)
    evidence: Evidence = field(repr=False)
    unlike_training: bool | None = None

    def strongest(self, top: int = TOP, class_name: str | None = None) -> list[PrototypePart]:
        """The prototypes that matter most for a class (the predicted one), those for it first."""
        name = class_name or self.predicted
        by_weight = sorted(self.prototypes, key=lambda part: -abs(part.contributions[name]))
        return sorted(by_weight[:top], key=lambda part: -part.contributions[name])

    def activation(self, index: int) -> Picture:
        """The activation map (S, S) of a prototype on this image."""
        similarity = prototype_map(self.run.model, self.evidence.maps, index)[0]
        return upsampled(similarity, len(self.picture))

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain values; contributions sum to the logits."""
        return {
            "image": self.image,
            "predicted": self.predicted,
            "logits": self.logits,
            "probabilities": self.probabilities,
            "prototypes": [part.to_json() for part in self.prototypes],
        }

    def figure(
        self, top: int = TOP, colour_map: str = COLOUR_MAP, mask: NDArray[Any] | None = None
    ) -> Figure:
        """The figure: case-based, or Grad-CAM and a plain word where the model has no prototypes.

        `mask` (S, S), the annotation of the image, is outlined where it is given.
        """
        from protopyramid.explain.figure_data import black_box_view, case_view
        from protopyramid.figures.drawing import check_colour_map

        check_colour_map(colour_map)
        if not self.prototypes:
            from protopyramid.figures.layouts import black_box_figure

            return black_box_figure(black_box_view(self, mask), colour_map)
        from protopyramid.figures.case_figure import case_figure

        return case_figure(case_view(self, top, mask), colour_map)

    def save(self, path: str | Path, top: int = TOP, colour_map: str = COLOUR_MAP) -> Path:
        """Write the explanation as the suffix says: .png, .pdf or .svg (figure), or .json."""
        return self.save_all([path], top, colour_map)[0]

    def save_all(
        self, paths: Sequence[str | Path], top: int = TOP, colour_map: str = COLOUR_MAP
    ) -> list[Path]:
        """Write several files; the figure is drawn once."""
        from protopyramid.figures.drawing import SUFFIXES, save_figure

        figure = None
        written = [Path(path) for path in paths]
        for path in written:
            if path.suffix.lower() == ".json":
                content = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
                RunFolder(path.parent).write_text(path.name, content)
                continue
            if path.suffix.lower() not in SUFFIXES:
                raise UserError(
                    f"{path}: an explanation is saved as .png, .pdf, .svg or .json; change the suffix"
                )
            figure = figure or self.figure(top, colour_map)
            save_figure(figure, path)
        return written

    def _repr_png_(self) -> bytes:
        from protopyramid.figures.drawing import figure_bytes

        return figure_bytes(self.figure(), dpi=80)

    def _repr_html_(self) -> str:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.probabilities.items())
        picture = base64.b64encode(self._repr_png_()).decode()
        return (
            f"<p><b>{html.escape(self.image)}: {html.escape(self.predicted)}</b> "
            f"({html.escape(shares)})</p>"
            f'<img alt="case-based explanation" style="max-width:100%" '
            f'src="data:image/png;base64,{picture}">'
        )


def explain_file(run: Run, image: str | Path, name: str | None = None) -> Explanation:
    """The explanation of an image file; it is called by the file's name unless `name` is given."""
    path = Path(image)
    if not path.is_file():
        raise UserError(f"{path}: no such image file")
    return explain_array(run, read_image(path, run.config.data.dicom), name or path.name)


def explain_array(run: Run, image: NDArray[np.float32], name: str = "image") -> Explanation:
    """The explanation of an image (H, W) or (H, W, 3) in [0, 1]."""
    data = run.config.data
    prepared = prepare(image, None, None, data.image_size, data.fit)
    return explain_prepared(run, prepared.image, name)


def explain_prepared(run: Run, image: Tensor, name: str = "image") -> Explanation:
    """The explanation of an image (C, S, S) in [0, 1] at the size of the model's input."""
    run.model.eval()
    with torch.inference_mode():
        evidence = run.model(model_input(image[None], run.config.data, device_of(run.model)))
    evidence = _on_cpu(evidence)
    classes = run.config.data.classes
    if not bool(torch.isfinite(evidence.logits).all()):
        raise UserError(f"{name}: the model's scores are not numbers; the run is damaged")
    parts = _parts(run, evidence) if run.model.prototypes is not None else []
    if parts:
        logits = {name: math.fsum(part.contributions[name] for part in parts) for name in classes}
    else:
        logits = dict(zip(classes, evidence.logits[0].double().tolist(), strict=True))
    shares = softmax(np.array(list(logits.values()))).tolist()
    probabilities = dict(zip(logits, shares, strict=True))
    predicted = max(logits, key=lambda name: logits[name])
    picture, unlike = to_picture(image), _unlike(run, image, evidence)
    return Explanation(
        name, predicted, logits, probabilities, parts, picture, run, evidence, unlike
    )


def _parts(run: Run, evidence: Evidence) -> list[PrototypePart]:
    """One part a prototype, in double precision: its contributions sum to the logits."""
    layer, classes = layer_of(run.model), run.config.data.classes
    scores = evidence.scores[0].double()
    weights = run.model.head.weight.detach().cpu().double()
    contributions = (weights * scores).T.tolist()
    boxes = _boxes(run, evidence)
    owners, levels = layer.classes.tolist(), layer.levels.tolist()
    return [
        PrototypePart(
            index,
            classes[owners[index]],
            levels[index],
            similarity,
            dict(zip(classes, weights[:, index].tolist(), strict=True)),
            dict(zip(classes, contributions[index], strict=True)),
            boxes[index],
        )
        for index, similarity in enumerate(scores.tolist())
    ]


def _boxes(run: Run, evidence: Evidence) -> list[Box]:
    """The box of the strongest region of every prototype, in their order."""
    size = run.config.data.image_size
    boxes: list[Box] = []
    for level in layer_of(run.model).slices:
        for similarity in evidence.maps[level][0].float():
            activation = activation_maps(similarity[None, None], size, size)[0, 0]
            boxes.append(region_box(strongest_region(activation)))
    return boxes


def _unlike(run: Run, image: Tensor, evidence: Evidence) -> bool | None:
    """Whether an image (C, S, S) is out of distribution; None where the run cannot tell."""
    limits = limits_for(run)
    if limits is None:
        return None
    features = ood_features(image[None], evidence.scores, evidence.closeness)
    return bool(limits.relative_distance(features)[0] > 1)


def _on_cpu(evidence: Evidence) -> Evidence:
    maps = {level: maps.cpu() for level, maps in evidence.maps.items()}
    return Evidence(evidence.logits.cpu(), evidence.scores.cpu(), maps, evidence.closeness.cpu())
