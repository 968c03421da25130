"""The explanation of one image as a result: numbers, JSON and figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopyramid.errors import UserError
from protopyramid.explanations.contrast import (
    Contrast,
    ContrastPart,
    check_class,
    contrast,
    contrast_json,
    runner_up,
)
from protopyramid.explanations.evidence import EvidenceRegion, find_evidence
from protopyramid.explanations.origin import Origin, input_origin
from protopyramid.explanations.saliency import grad_cam
from protopyramid.explanations.weighing import Factors, check_factors, factors_text, weighed_parts
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.reference import Reference
from protopyramid.metrics.prototype_health import SHOWN_ROWS
from protopyramid.metrics.softmax import softmax
from protopyramid.model.activation import (
    Box,
    MaskedRegion,
    Region,
    activation_region,
    mask_lines,
    region_of,
)
from protopyramid.model.network import Evidence
from protopyramid.prototypes.cases import Picture, from_picture, prototype_map
from protopyramid.runs.run import Run
from protopyramid.utils.arguments import as_path, checked_arguments
from protopyramid.utils.files import write_json

if TYPE_CHECKING:
    # Matplotlib is imported only when something is drawn.
    from matplotlib.figure import Figure

    from protopyramid.figures.case_figure import CaseFigureData, CaseRow, Lead, Prediction
    from protopyramid.figures.drawing import Sheet

TOP = SHOWN_ROWS
NO_CONTRIBUTIONS = (
    "This model's head has hidden layers: its logits are not sums, so nothing in the image has a "
    "contribution of its own."
)
COLOUR_MAP = "inferno"  # as in figures/drawing.py
SUFFIXES = (".png", ".pdf", ".svg", ".json")  # of what an explanation can be written as


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
    `reference`: what an average training image scores, None where the run does not know it; `rival`: the
    class that was chosen to compare with. `asked_back`: by prototype, how many times as much it counts as
    the model has it, and `original`, the explanation without these changes.
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
    reference: Reference | None = field(default=None, repr=False)
    rival: str | None = None
    asked_back: Factors = field(default_factory=dict, repr=False)
    original: Explanation | None = field(default=None, repr=False)

    @property
    def against(self) -> str | None:
        """The class that the predicted one is compared with: the chosen one, or else the runner-up.

        None where the model has one class only. The predicted class itself cannot be a rival.
        """
        if self.rival not in (None, self.predicted):
            return self.rival
        return runner_up(self.logits, self.predicted)

    @checked_arguments
    def compared_with(self, against: str | None) -> Explanation:
        """This explanation against another class than the runner-up; None for the runner-up."""
        return replace(self, rival=check_class(against, list(self.logits)))

    def weighed(self, factors: Factors) -> Explanation:
        """What the model would say if each prototype of `factors` counted so many times as much.

        0 switches a prototype off. Exact, since logits are sums of contributions; UserError for a black box.

        Example: ``run.explain("lesion.png").weighed({28: 0, 18: 0.5}).save("what-if.png")``
        """
        original = self.original or self
        changed = check_factors(factors, len(self.prototypes))
        if not changed:
            return original
        parts = weighed_parts(original.prototypes, changed)
        logits = contribution_sums(parts, self.logits)
        shares = softmax(np.array([list(logits.values())]))[0].tolist()
        return replace(
            original,
            predicted=max(logits, key=lambda name: logits[name]),
            logits=logits,
            probabilities=dict(zip(logits, shares, strict=True)),
            prototypes=parts,
            rival=self.rival,
            evidence_regions=self.evidence_regions,
            asked_back=changed,
            original=original,
        )

    @cached_property
    def contrast(self) -> Contrast:
        """What each prototype adds to the difference between the predicted class and `against`."""
        averages = None if self.reference is None else self.reference.scores
        return contrast(self.prototypes, self.predicted, self.against, averages)

    @checked_arguments
    def shown(self, top: int = TOP) -> list[PrototypePart]:
        """The prototypes that figures show: those that set the two classes apart most."""
        by_index = {part.index: part for part in self.prototypes}
        return [by_index[index] for index in self.contrast.strongest(top)]

    @property
    def framing(self) -> str | None:
        """How the image differs in size from the training images, where it may be a whole film."""
        return None if self.origin is None else self.origin.framing

    @property
    def note(self) -> str | None:
        """What the explanation cannot say because of the model's head, where that is so."""
        return NO_CONTRIBUTIONS if self.run.model.hidden is not None else None

    @property
    def summary(self) -> str:
        """What the model says in one line: a warning first, where there is one."""
        from protopyramid.figures.film import headline
        from protopyramid.figures.text import percent

        name, shares = self.predicted, self.probabilities
        said = headline(name, percent(shares[name]), bool(self.unlike_training), bool(self.framing))
        if said.note:
            stop = "" if said.title.endswith("?") else "."
            return f"{said.title}{stop} {said.below}. {said.note}"
        against = (
            "" if self.against is None else f", {self.against} {percent(shares[self.against])}"
        )
        return f"{name} {percent(shares[name])}{against}"

    @checked_arguments
    def strongest(self, top: int = TOP, class_name: str | None = None) -> list[PrototypePart]:
        """The prototypes that matter most for a class (the predicted one), those for it first."""
        name = check_class(class_name, list(self.logits)) or self.predicted
        by_size = sorted(self.prototypes, key=lambda part: -abs(part.contributions[name]))
        return sorted(by_size[:top], key=lambda part: -part.contributions[name])

    @checked_arguments
    def region(self, index: int) -> Region:
        """Where a prototype activates on this image: activation map, mask, contour and box."""
        if index >= len(self.prototypes):
            raise UserError(
                f"index: the run has {len(self.prototypes)} prototypes, so none is {index}"
            )
        similarity = prototype_map(self.run.model, self.evidence.maps, index)[0]
        return activation_region(similarity, *self.picture.shape[:2])

    @checked_arguments
    def with_evidence(self, top: int = TOP, indices: Sequence[int] | None = None) -> Explanation:
        """This explanation with the evidence regions of the `top` strongest prototypes, or of `indices`.

        Costs three or four forward passes and one backward pass per prototype. UserError for a black box.
        """
        shown = [part.index for part in self.shown(top)] if indices is None else list(indices)
        pixels = from_picture(self.picture)
        if not shown and self.prototypes:  # of none, as asked
            return replace(self, evidence_regions={})
        found = find_evidence(self.run, pixels, shown, self.evidence.maps)
        return replace(self, evidence_regions=found)

    @checked_arguments
    def outlined(self, evidence: bool | None = None, top: int = TOP) -> Explanation:
        """This explanation with evidence regions, if they are wanted; None: where there are prototypes."""
        wanted = bool(self.prototypes) if evidence is None else evidence
        return self.with_evidence(top) if wanted else self

    @checked_arguments
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
        """The explanation as plain values; contributions sum to the logits.

        Of an explanation that was weighed: that of the model as it is, with the changes as `asked_back`.
        """
        if self.original is not None:
            return {
                **replace(self.original, rival=self.rival).to_json(),
                "asked_back": self._asked_json(),
            }
        content: dict[str, Any] = {
            "image": self.image,
            "predicted": self.predicted,
            "logits": self.logits,
            "probabilities": self.probabilities,
            "against": self.against,
            "reference": self._reference_json(),
            "prototypes": [part.to_json() for part in self.prototypes],
        }
        content = contrast_json(content, self.contrast)
        if self.note:
            content["note"] = self.note
        origin = self.origin or input_origin(len(self.picture))
        content = origin.in_json(content)
        for part in content["prototypes"]:
            if part["index"] in self.evidence_regions:
                found = self.evidence_regions[part["index"]]
                part["evidence"] = None if found is None else _evidence_json(found, origin)
        return content

    def _asked_json(self) -> dict[str, Any]:
        return {
            "predicted": self.predicted,
            "logits": self.logits,
            "probabilities": self.probabilities,
            "factors": {str(index): factor for index, factor in self.asked_back.items()},
        }

    @property
    def changed(self) -> str:
        """What was changed by asking back, and what the model itself says; "" where nothing was."""
        if self.original is None:
            return ""
        from protopyramid.figures.text import percent

        name = self.original.predicted
        share = percent(self.original.probabilities[name])
        return f"Changed: {factors_text(self.asked_back)}. The model itself: {name}, {share}"

    def _reference_json(self) -> dict[str, Any] | None:
        """The average training image: what it is a mean of, and its logits."""
        if self.reference is None:
            return None
        weights = self.run.model.head.weight.detach().cpu()
        logits = dict(zip(self.logits, self.reference.logits(weights), strict=True))
        return {"split": self.reference.split, "images": self.reference.images, "logits": logits}

    @checked_arguments
    def figure(
        self, top: int = TOP, colour_map: str = COLOUR_MAP, mask: NDArray[Any] | None = None
    ) -> Figure:
        """The case-based figure, or Grad-CAM with a caveat if the model has no prototypes.

        `mask` (S, S), the annotation of the image, is outlined where it is given.
        """
        return self.sheet(top, colour_map, mask).figure

    @checked_arguments
    def sheet(
        self, top: int = TOP, colour_map: str = COLOUR_MAP, mask: NDArray[Any] | None = None
    ) -> Sheet:
        """The same figure as strokes, from which a PNG is made without Matplotlib."""
        sheet = self._sheet(top, colour_map, mask)
        if self.origin is not None and self.origin.film is not None and self.origin.marked:
            from protopyramid.figures.film import draw_film

            draw_film(sheet, self.origin.film, self.origin.marked)
        return sheet

    def _sheet(self, top: int, colour_map: str, mask: NDArray[Any] | None) -> Sheet:
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

    @checked_arguments
    def save(self, path: str | Path, top: int = TOP, colour_map: str = COLOUR_MAP) -> Path:
        """Write the explanation in the format of the suffix: .png, .pdf or .svg (figure), or .json."""
        return self.save_all([path], top, colour_map)[0]

    @checked_arguments
    def save_all(
        self, paths: Sequence[str | Path], top: int = TOP, colour_map: str = COLOUR_MAP
    ) -> list[Path]:
        """Write several files; the figure is drawn once."""
        from protopyramid.figures.drawing import save_figure

        targets = [as_path(path, "path") for path in paths]
        unknown = [path for path in targets if path.suffix.lower() not in SUFFIXES]
        if unknown:
            raise UserError(
                f"{unknown[0]}: cannot save an explanation in this format; "
                "use .png, .pdf, .svg or .json"
            )
        sheet = None
        for path in targets:
            if path.suffix.lower() == ".json":
                write_json(path, self.to_json())
            else:
                sheet = sheet or self.sheet(top, colour_map)
                save_figure(sheet, path)
        return targets

    def _repr_png_(self) -> bytes:
        from protopyramid.figures.drawing import figure_bytes

        return figure_bytes(self.sheet(), dpi=80)

    def _repr_html_(self) -> str:
        from protopyramid.figures.notebook import case_html
        from protopyramid.utils.html import html_of, image

        if self.prototypes:
            return case_html(_case_figure_data(self, TOP, None))
        said = f"<p><b>{html_of(self.image)}: {html_of(self.summary)}</b></p>"
        return said + image(self._repr_png_(), "the image and its saliency map").text


def check_formats(formats: Sequence[str]) -> list[str]:
    """The suffixes of formats that an explanation can be written in; else a UserError."""
    suffixes = [f".{each.strip().lower()}" for each in formats]
    unknown = [suffix[1:] for suffix in suffixes if suffix not in SUFFIXES]
    if unknown or not suffixes:
        named = f'"{unknown[0]}"' if unknown else "no format"
        known = ", ".join(suffix[1:] for suffix in SUFFIXES)
        raise UserError(
            f"--format: cannot write {named}; choose among {known}, as in --format png,json"
        )
    return list(dict.fromkeys(suffixes))


def _evidence_json(found: EvidenceRegion, origin: Origin) -> dict[str, Any]:
    """Mask and box in pixels of the file; the mask as closed lines that hold it by the even-odd rule."""
    box = list(origin.mapping.fractions_to_file(found.box))
    mask = [origin.mapping.line_to_file(line) for line in mask_lines(found.mask)]
    return {"mask": mask, "box_pixels": box, "share": found.share, "kept": found.kept}


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
        against=explanation.against,
        changed=explanation.changed,
    )


def _case_figure_data(
    explanation: Explanation, top: int, mask: NDArray[Any] | None
) -> CaseFigureData:
    """The prototypes that set two classes apart as rows, and what the others add."""
    from protopyramid.figures.case_figure import CaseFigureData

    shown = explanation.shown(top)
    indices = {part.index for part in shown}
    reference = explanation.reference
    return CaseFigureData(
        prediction=_prediction(explanation),
        image=explanation.picture,
        rows=_case_rows(explanation, shown),
        lead=_lead(explanation.contrast, indices),
        reference=None if reference is None else reference.words,
        mask=mask,
        tta=explanation.run.config.model.tta,
        evidence=bool(explanation.evidence_regions),
    )


def _lead(found: Contrast, shown: Set[int]) -> Lead:
    """How the lead over a class comes about: an average image, and the prototypes of either side."""
    from protopyramid.figures.case_figure import Lead, Side

    def side(parts: Sequence[ContrastPart]) -> Side:
        rows = [part for part in parts if part.index in shown]
        sums = (math.fsum(part.points for part in some) for some in (parts, rows))
        return Side(len(parts), next(sums), len(rows), next(sums))

    ahead, behind = found.sides
    return Lead(found.reference, side(ahead), side(behind), found.total)


def _case_rows(explanation: Explanation, parts: Sequence[PrototypePart]) -> list[CaseRow]:
    from protopyramid.figures.case_figure import CaseRow

    cases = explanation.run.cases.look_up(part.index for part in parts)
    found = {part.index: part for part in explanation.contrast.parts}
    return [
        CaseRow(
            index=part.index,
            class_name=part.class_name,
            level=part.level,
            region=explanation.shown_region(part.index),
            case_image=cases[part.index].image,
            case_region=cases[part.index].region,
            score=part.score,
            average=found[part.index].average,
            weight=found[part.index].weight,
            points=found[part.index].points,
            case_cell=cases[part.index].cell,
            case_label=cases[part.index].record.label,
            case_note=cases[part.index].note,
        )
        for part in parts
    ]


def contribution_sums(
    parts: Sequence[PrototypePart], classes: Sequence[str] | dict[str, float]
) -> dict[str, float]:
    """What prototypes together add to each class."""
    return {name: math.fsum(part.contributions[name] for part in parts) for name in classes}
