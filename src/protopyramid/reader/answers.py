"""What the reader says of runs and images, as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from protopyramid.data.geometry import Box, Spacing
from protopyramid.data.io.decoding import Decoded
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.explanations.explanation import Explanation, PreparedImage, explain_batch
from protopyramid.explanations.origin import place_sample
from protopyramid.inference.requests import check_box, region_sample
from protopyramid.model.activation import Region as ActivationRegion
from protopyramid.runs import layout
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run
from protopyramid.utils.opening import TEXT, is_file, read_text

MAP_SIDE = 56  # cells of a map that is only looked at
DECIMALS = 4  # of a contour, in fractions of the model's input
MOST_EVIDENCE = 8  # evidence regions that are found at once


def parse_box(text: str, what: str) -> Box:
    """The box of a form field, as in "120,340,260,480"."""
    try:
        box = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{what}: needs four numbers, as in 120,340,260,480") from None
    return check_box(box, what)


def prepare_request(
    run: Run,
    decoded: Decoded,
    spacing: Spacing | None,
    name: str,
    region: Box | None,
    lesion: Box | None,
    pixels: int,
) -> PreparedImage:
    """What the model is to see of a decoded image: a region, the square around a lesion, or all of it."""
    data = run.config.data
    here = Path(name)
    sample = Sample(0, name, here, label="", split="test")
    if region is not None:
        _check_area(region, 0.0, pixels)
        sample = region_sample(here, region, name)
    elif lesion is not None:
        _check_area(lesion, data.region.margin, pixels)
        sample = Sample(0, name, here, label="", split="test", box=lesion)
        data = data.model_copy(update={"crop": "lesion"})
    prepared, origin = place_sample(run, sample, data, decoded, spacing)
    return PreparedImage(prepared.image, name, origin)


def _check_area(box: Box, margin: float, pixels: int) -> None:
    side = max(box[2] - box[0], box[3] - box[1]) * (1 + 2 * margin)
    if side * side > pixels:
        raise UserError(
            f"the region is {side:.0f} pixels wide with its margin, more than is accepted; mark a smaller one"
        )


def explanation_json(
    explanation: Explanation, run_name: str, cases: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The explanation of the contract, with what a page needs in order to draw it.

    Beside the contract: `run`, `unlike_training`, `framing`, `input` (`size` of the model's input, and
    whether it is `mirrored` relative to the file), and per prototype `map` and `case`.
    """
    content = explanation.to_json()
    records = {record.index: record for record in explanation.run.prototypes}
    pictured = explanation.run.cases.pictured()
    maps = _maps_json(explanation)
    for part in content["prototypes"]:
        index = part["index"]
        part["map"] = maps[index]
        if index in records:
            part["case"] = {
                **_case_json(records[index], run_name, index in pictured),
                "number": (cases or {}).get(records[index].image),
            }
    mirrored = explanation.origin is not None and explanation.origin.mapping.mirrored
    return {
        **content,
        "run": run_name,
        "unlike_training": explanation.unlike_training,
        "framing": explanation.framing,
        "input": {"size": len(explanation.picture), "mirrored": mirrored},
    }


def _case_json(record: PrototypeRecord, run_name: str, pictured: bool) -> dict[str, Any]:
    return {
        "image": record.image,
        "class": record.class_name,
        "box": list(record.box),
        "picture": picture_url(run_name, record.index),
        "pictured": pictured,
    }


def _maps_json(explanation: Explanation) -> list[dict[str, Any]]:
    """The similarity maps of all prototypes on the image, in their order."""
    layer, maps = explanation.run.model.prototypes, explanation.evidence.maps
    if layer is None:
        return []
    return [each for level in layer.slices for each in maps_json(maps[level][0])]


def maps_json(similarities: Tensor) -> list[dict[str, Any]]:
    """Similarity maps (m, h, w), each as bytes from 0 at `low` to 255 at `high`, row by row, in base 64."""
    values = similarities.double().numpy()
    lows, highs = values.min((1, 2)), values.max((1, 2))
    scales = 255 / np.maximum(highs - lows, 1e-12)
    levels = np.rint((values - lows[:, None, None]) * scales[:, None, None]).astype(np.uint8)
    rows, columns = values.shape[1:]
    return [
        {
            "rows": rows,
            "columns": columns,
            "low": low,
            "high": high,
            "values": base64.b64encode(each.tobytes()).decode(),
        }
        for low, high, each in zip(lows.tolist(), highs.tolist(), levels, strict=True)
    ]


def _flat(line: NDArray[np.float64]) -> list[float]:
    flat: list[float] = np.round(line, DECIMALS).ravel().tolist()
    return flat


def run_summary(run: Run, name: str) -> dict[str, Any]:
    """One run among those that are served."""
    data = run.config.data
    return {
        "name": name,
        "classes": list(data.classes),
        "negative_class": data.negative_class,
        "prototypes": len(run.prototypes),
        "levels": sorted({record.level for record in run.prototypes}),
        "image_size": data.image_size,
        "crop": data.crop,
        "margin": data.region.margin,
        "black_box": run.model.prototypes is None,
        "title": run.system_title,
    }


def run_json(run: Run, name: str, cases: Mapping[str, int]) -> dict[str, Any]:
    """A run with its prototypes, their pictures and its model card.

    cases: numbers of the served cases by their names, so that a prototype's source is found among them.
    """
    card = run.folder / layout.CARD
    pictured = run.cases.pictured()
    prototypes = [
        {
            **record.to_json(),
            "picture": picture_url(name, record.index),
            "pictured": record.index in pictured,
            "weights": dict(zip(run.config.data.classes, column, strict=True)),
            "number": cases.get(record.image),
        }
        for record, column in zip(run.prototypes, _head_columns(run), strict=True)
    ]
    text = read_text(card, TEXT) if is_file(card) else ""
    return {**run_summary(run, name), "prototypes": prototypes, "card": text}


def _head_columns(run: Run) -> list[list[float]]:
    """The weights of each prototype for the classes."""
    if run.model.prototypes is None:
        return []
    columns: list[list[float]] = run.model.head.weight.detach().cpu().double().T.tolist()
    return columns


def picture_url(name: str, index: int) -> str:
    """Where the picture of a prototype's case is served."""
    return f"/api/runs/{quote(name, safe='')}/prototypes/{index}.png"


def case_regions(run: Run, indices: Sequence[int]) -> list[dict[str, Any]]:
    """Where prototypes activate on their own cases: closed lines in fractions of the picture, and a map."""
    cases = run.cases.look_up(indices)
    return [region_json(cases[index].region) for index in indices]


def region_json(region: ActivationRegion) -> dict[str, Any]:
    """A region's outline, closed lines x, y, x, y, … in fractions, and its activation map."""
    lines = [_flat(line) for line in region.contour]
    return {
        "contours": lines,
        "map": maps_json(small_map(torch.as_tensor(region.activation))[None])[0],
    }


def small_map(activation: Tensor) -> Tensor:
    """An activation map (H, W) at no more than MAP_SIDE x MAP_SIDE."""
    height, width = activation.shape
    if max(height, width) <= MAP_SIDE:
        return activation
    return adaptive_avg_pool2d(activation[None].float(), (MAP_SIDE, MAP_SIDE))[0]


def explain_with_saliency(
    run: Run, batch: Sequence[PreparedImage]
) -> list[tuple[Explanation, ActivationRegion]]:
    """Explanations, each with Grad-CAM of its predicted class."""
    return [(each, each.saliency()) for each in explain_batch(run, batch)]


def explain_with_evidence(
    indices: Sequence[int], run: Run, batch: Sequence[PreparedImage]
) -> list[Explanation]:
    """Explanations, each with the evidence regions of some prototypes."""
    known = len(run.prototypes)
    unknown = next((index for index in indices if not 0 <= index < known), None)
    if unknown is not None:
        raise UserError(f"evidence: there is no prototype {unknown}; this model has {known}")
    return [each.with_evidence(indices=indices) for each in explain_batch(run, batch)]


def parse_indices(text: str) -> tuple[int, ...]:
    """The prototypes of a form field, as in "28,8", each once; () for an empty one."""
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",") if text))
    except ValueError:
        raise UserError("evidence: needs numbers of prototypes, as in 28,8") from None
    if len(found) > MOST_EVIDENCE:
        raise UserError(f"evidence: at most {MOST_EVIDENCE} prototypes at once")
    return found


class Saving(NamedTuple):
    """What is asked back of an explanation that is saved: see `Explanation.weighed` and `compared_with`.

    evidence: whether evidence regions are outlined in place of the strongest part of each map.
    """

    factors: Mapping[int, float]
    against: str | None = None
    evidence: bool = False


def parse_factors(text: str) -> dict[int, float]:
    """The factors of a form field, as in {"28": 0, "18": 0.4}."""
    try:
        content = json.loads(text or "{}")
        return {int(index): float(factor) for index, factor in content.items()}
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
        raise UserError('factors: needs numbers by prototype, as in {"28": 0, "18": 0.4}') from None


def explain_to_save(run: Run, batch: Sequence[tuple[PreparedImage, Saving]]) -> list[Explanation]:
    """Explanations with what was asked back; cases are looked up, so that a figure needs no further pass."""
    found = [
        each.weighed(saving.factors)
        .compared_with(saving.against)
        .outlined(saving.evidence and bool(run.prototypes))
        for each, (_, saving) in zip(
            explain_batch(run, [prepared for prepared, _ in batch]), batch, strict=True
        )
    ]
    if run.prototypes:
        run.cases.look_up({part.index for each in found for part in each.shown()})
    return found
