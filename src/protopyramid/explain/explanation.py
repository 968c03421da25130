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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import prepare
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.explain.origin import Origin, input_origin, open_sample
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.ood import limits_for, numbers_of
from protopyramid.inference.requests import region_sample
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
    it is unlike the training data; None when the run cannot tell (no thresholds.json). `origin`: where the
    picture lies in its file; None for one that was given at the size of the model's input.
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
    origin: Origin | None = field(default=None, repr=False)

    @property
    def framing(self) -> str | None:
        """How the image differs in size from the training images, where it may be a whole film."""
        return None if self.origin is None else self.origin.framing

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
        content = {
            "image": self.image,
            "predicted": self.predicted,
            "logits": self.logits,
            "probabilities": self.probabilities,
            "prototypes": [part.to_json() for part in self.prototypes],
        }
        return (self.origin or input_origin(len(self.picture))).in_json(content)

    def figure(
        self, top: int = TOP, colour_map: str = COLOUR_MAP, mask: NDArray[Any] | None = None
    ) -> Figure:
        """The figure: case-based, or Grad-CAM and a plain word where the model has no prototypes.

        `mask` (S, S), the annotation of the image, is outlined where it is given.
        """
        figure = self._figure(top, colour_map, mask)
        if self.origin is not None and self.origin.film is not None and self.origin.marked:
            from protopyramid.figures.film import add_film

            add_film(figure, self.origin.film, self.origin.marked)
        return figure

    def _figure(self, top: int, colour_map: str, mask: NDArray[Any] | None) -> Figure:
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


def explain_file(
    run: Run, image: str | Path, name: str | None = None, region: Box | None = None
) -> Explanation:
    """The explanation of an image file, called `name` or else by the file's name.

    region: what the model is to see, x0, y0, x1, y1 in pixels of the file, made square around its centre.
    """
    path = Path(image)
    if not path.is_file():
        raise UserError(f"{path}: no such image file; check the path")
    called = name or path.name
    sample = Sample(0, called, path, label="", split="test")
    marked = sample if region is None else region_sample(path, region, called)
    return explain_sample(run, marked)


def explain_sample(run: Run, sample: Sample, data: DataConfig | None = None) -> Explanation:
    """The explanation of a sample as `data`, by default that of the run, says that it is seen."""
    prepared, origin = open_sample(run, sample, data or run.config.data)
    return explain_prepared(run, prepared.image, sample.name, origin)


def explain_array(run: Run, image: NDArray[np.float32], name: str = "image") -> Explanation:
    """The explanation of an image (H, W) or (H, W, 3) in [0, 1]."""
    data = run.config.data
    prepared = prepare(image, None, None, data.image_size, data.fit)
    return explain_prepared(run, prepared.image, name, Origin(prepared.mapping))


def explain_prepared(
    run: Run, image: Tensor, name: str = "image", origin: Origin | None = None
) -> Explanation:
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
    probabilities = softmax(logits)
    predicted = max(logits, key=lambda name: logits[name])
    picture, unlike = to_picture(image), _unlike(run, image, evidence)
    return Explanation(
        name, predicted, logits, probabilities, parts, picture, run, evidence, unlike, origin
    )


def softmax(logits: Mapping[str, float]) -> dict[str, float]:
    """Probabilities of class scores.

    >>> softmax({"a": 0.0, "b": 0.0})
    {'a': 0.5, 'b': 0.5}
    """
    largest = max(logits.values())
    powers = {name: math.exp(value - largest) for name, value in logits.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


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
    """Whether an image (C, S, S) is unlike the training data; None where the run cannot tell."""
    limits = limits_for(run)
    if limits is None:
        return None
    numbers = numbers_of(image[None], evidence.scores, evidence.closeness)
    return bool(limits.unlikeness(numbers)[0] > 1)


def _on_cpu(evidence: Evidence) -> Evidence:
    maps = {level: maps.cpu() for level, maps in evidence.maps.items()}
    return Evidence(evidence.logits.cpu(), evidence.scores.cpu(), maps, evidence.closeness.cpu())
