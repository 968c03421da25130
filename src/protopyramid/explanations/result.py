"""The explanation of one image as a result: numbers, JSON and figure."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray

from protopyramid.errors import UserError
from protopyramid.explanations.evidence import EvidenceRegion, find_evidence
from protopyramid.explanations.origin import Origin, input_origin
from protopyramid.explanations.saliency import grad_cam
from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.activation import Box, MaskedRegion, Region, activation_region, region_of
from protopyramid.model.network import Evidence
from protopyramid.prototypes.cases import Picture, from_picture, prototype_map
from protopyramid.runs.run import Run
from protopyramid.utils.arguments import as_path
from protopyramid.utils.files import write_json

if TYPE_CHECKING:
    # Matplotlib is imported only when something is drawn.
    from matplotlib.figure import Figure

    from protopyramid.figures.case_figure import CaseFigureData, CaseRow, Prediction, RunnerUp

TOP = 5
NO_CONTRIBUTIONS = (
    "This model's head has hidden layers: its logits are not sums, so nothing in the image has a "
    "contribution of its own."
)
COLOUR_MAP = "inferno"  # as in figures/drawing.py


@dataclass(frozen=True)
class PrototypePart:
    """What one prototype has to do with the image.

    `score` is the prototype's pooled similarity, called `similarity` in JSON; contributions = score x
    weights; `box` encloses the region on which the prototype activates, as fractions of the model's
    input.
    """

    index: int
    class_name: str
    level: int
    score: float
    weights: dict[str, float]
    contributions: dict[str, float]
    box: Box

    def to_json(self) -> dict[str, Any]:
        """The entry of `prototypes` in an explanation's JSON."""
        return {
            "index": self.index,
            "class": self.class_name,
            "level": self.level,
            "similarity": self.score,
            "weights": self.weights,
            "contributions": self.contributions,
            "box": list(self.box),
        }


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why the model says what it says of one image.

    `logits` are the sums of the contributions of all prototypes (of a black box: the model's own).
    `picture` is the image as the model saw it, (S, S) or (S, S, 3) in [0, 1]. `unlike_training`: whether
    it is unlike the training data; None if the run cannot tell (no thresholds.json). `origin`: where the
    picture lies in its file; None for one that was given at the size of the model's input.
    `evidence_regions`: by prototype, those that `with_evidence` has found (None for a flat map).
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
    evidence_regions: Mapping[int, EvidenceRegion | None] = field(default_factory=dict, repr=False)

    @property
    def framing(self) -> str | None:
        """How the image differs in size from the training images, where it may be a whole film."""
        return None if self.origin is None else self.origin.framing

    @property
    def note(self) -> str | None:
        """What the explanation cannot say because of the model's head, where that is so."""
        return NO_CONTRIBUTIONS if self.run.model.hidden is not None else None

    def strongest(self, top: int = TOP, class_name: str | None = None) -> list[PrototypePart]:
        """The prototypes that matter most for a class (the predicted one), those for it first."""
        name = class_name or self.predicted
        by_size = sorted(self.prototypes, key=lambda part: -abs(part.contributions[name]))
        return sorted(by_size[:top], key=lambda part: -part.contributions[name])

    def region(self, index: int) -> Region:
        """Where a prototype activates on this image: activation map, mask, contour and box."""
        similarity = prototype_map(self.run.model, self.evidence.maps, index)[0]
        return activation_region(similarity, *self.picture.shape[:2])

    def with_evidence(self, top: int = TOP) -> Explanation:
        """This explanation with the evidence regions of the `top` strongest prototypes.

        Costs about five forward passes and one backward pass per prototype.
        """
        shown = [part.index for part in self.strongest(top)]
        found = find_evidence(self.run, from_picture(self.picture), shown)
        return replace(self, evidence_regions=found)

    def shown_region(self, index: int) -> Region:
        """What figures outline: the evidence region where there is one, else `region`."""
        region, evidence = self.region(index), self.evidence_regions.get(index)
        if evidence is None:
            return region
        return MaskedRegion(region.activation, evidence.mask, evidence.box)

    def saliency(self) -> Region:
        """Grad-CAM of the predicted class and its region; for models without prototypes."""
        data, model = self.run.config.data, self.run.model
        images = model_input(from_picture(self.picture)[None], data, device_of(model))
        target = torch.tensor([data.classes.index(self.predicted)])
        return region_of(grad_cam(model, images, target)[0])

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain values; contributions sum to the logits."""
        content: dict[str, Any] = {
            "image": self.image,
            "predicted": self.predicted,
            "logits": self.logits,
            "probabilities": self.probabilities,
            "prototypes": [part.to_json() for part in self.prototypes],
        }
        if self.note:
            content["note"] = self.note
        origin = self.origin or input_origin(len(self.picture))
        content = origin.in_json(content)
        for part in content["prototypes"]:
            if part["index"] in self.evidence_regions:
                found = self.evidence_regions[part["index"]]
                part["evidence"] = None if found is None else _evidence_json(found, origin)
        return content

    def figure(
        self, top: int = TOP, colour_map: str = COLOUR_MAP, mask: NDArray[Any] | None = None
    ) -> Figure:
        """The case-based figure, or Grad-CAM with a caveat if the model has no prototypes.

        `mask` (S, S), the annotation of the image, is outlined where it is given.
        """
        figure = self._figure(top, colour_map, mask)
        if self.origin is not None and self.origin.film is not None and self.origin.marked:
            from protopyramid.figures.film import add_film

            add_film(figure, self.origin.film, self.origin.marked)
        return figure

    def _figure(self, top: int, colour_map: str, mask: NDArray[Any] | None) -> Figure:
        from protopyramid.figures.black_box_figure import BlackBoxFigureData, black_box_figure
        from protopyramid.figures.case_figure import case_figure
        from protopyramid.figures.drawing import check_colour_map

        check_colour_map(colour_map)
        if self.prototypes:
            return case_figure(_case_figure_data(self, top, mask), colour_map)
        data = BlackBoxFigureData(
            _prediction(self), self.picture, self.saliency(), mask, self.note or ""
        )
        return black_box_figure(data, colour_map)

    def save(self, path: str | Path, top: int = TOP, colour_map: str = COLOUR_MAP) -> Path:
        """Write the explanation in the format of the suffix: .png, .pdf or .svg (figure), or .json."""
        return self.save_all([path], top, colour_map)[0]

    def save_all(
        self, paths: Sequence[str | Path], top: int = TOP, colour_map: str = COLOUR_MAP
    ) -> list[Path]:
        """Write several files; the figure is drawn once."""
        from protopyramid.figures.drawing import SUFFIXES, save_figure

        targets = [as_path(path, "path") for path in paths]
        unknown = [path for path in targets if path.suffix.lower() not in (*SUFFIXES, ".json")]
        if unknown:
            raise UserError(
                f"{unknown[0]}: cannot save an explanation in this format; "
                "use .png, .pdf, .svg or .json"
            )
        figure = None
        for path in targets:
            if path.suffix.lower() == ".json":
                write_json(path, self.to_json())
            else:
                figure = figure or self.figure(top, colour_map)
                save_figure(figure, path)
        return targets

    def _repr_png_(self) -> bytes:
        from protopyramid.figures.drawing import figure_bytes

        return figure_bytes(self.figure(), dpi=80)

    def _repr_html_(self) -> str:
        from protopyramid.figures.text import percent

        shares = ", ".join(f"{name} {percent(share)}" for name, share in self.probabilities.items())
        picture = base64.b64encode(self._repr_png_()).decode()
        return (
            f"<p><b>{html.escape(self.image)}: {html.escape(self.predicted)}</b> "
            f"({html.escape(shares)})</p>"
            f'<img alt="case-based explanation" style="max-width:100%" '
            f'src="data:image/png;base64,{picture}">'
        )


def _evidence_json(found: EvidenceRegion, origin: Origin) -> dict[str, Any]:
    box = list(origin.mapping.fractions_to_file(found.box))
    return {"box_pixels": box, "share": found.share, "kept": found.kept}


# -- what its figure shows -----------------------------------------------------------------------
def _prediction(explanation: Explanation) -> Prediction:
    from protopyramid.figures.case_figure import Prediction

    return Prediction(
        explanation.image,
        explanation.predicted,
        explanation.logits,
        explanation.probabilities,
        unlike=bool(explanation.unlike_training),
        film=bool(explanation.framing),
    )


def _case_figure_data(
    explanation: Explanation, top: int, mask: NDArray[Any] | None
) -> CaseFigureData:
    """The strongest prototypes as rows, and what the others add."""
    from protopyramid.figures.case_figure import CaseFigureData

    shown = explanation.strongest(top)
    indices = {part.index for part in shown}
    others = [part for part in explanation.prototypes if part.index not in indices]
    return CaseFigureData(
        prediction=_prediction(explanation),
        image=explanation.picture,
        rows=_case_rows(explanation, shown),
        others=len(others),
        shown_sums=contribution_sums(shown, explanation.logits),
        other_sums=contribution_sums(others, explanation.logits),
        mask=mask,
        tta=explanation.run.config.model.tta,
        evidence=bool(explanation.evidence_regions),
        runner_up=_runner_up(explanation),
    )


def _runner_up(explanation: Explanation) -> RunnerUp | None:
    """What the class with the second largest total gets from its own prototypes and from others."""
    from protopyramid.figures.case_figure import RunnerUp

    rivals = {n: x for n, x in explanation.logits.items() if n != explanation.predicted}
    if not rivals:
        return None
    name = max(rivals, key=lambda each: rivals[each])
    own = [part for part in explanation.prototypes if part.class_name == name]
    others = [part for part in explanation.prototypes if part.class_name != name]
    return RunnerUp(
        name,
        len(own),
        contribution_sums(own, [name])[name],
        len(others),
        contribution_sums(others, [name])[name],
    )


def _case_rows(explanation: Explanation, parts: Sequence[PrototypePart]) -> list[CaseRow]:
    from protopyramid.figures.case_figure import CaseRow

    cases = explanation.run.cases.look_up(part.index for part in parts)
    return [
        CaseRow(
            index=part.index,
            class_name=part.class_name,
            level=part.level,
            region=explanation.shown_region(part.index),
            case_image=cases[part.index].image,
            case_region=cases[part.index].region,
            score=part.score,
            weight=part.weights[explanation.predicted],
            contribution=part.contributions[explanation.predicted],
            case_cell=cases[part.index].cell,
            case_label=cases[part.index].record.label,
        )
        for part in parts
    ]


def contribution_sums(
    parts: Sequence[PrototypePart], classes: Sequence[str] | dict[str, float]
) -> dict[str, float]:
    """What prototypes together add to each class."""
    return {name: math.fsum(part.contributions[name] for part in parts) for name in classes}
