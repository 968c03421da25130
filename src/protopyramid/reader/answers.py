"""What the reader says of runs and images, as JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.geometry import Box, Spacing
from protopyramid.data.io.decoding import Decoded
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.explanations.explanation import Explanation, PreparedImage
from protopyramid.explanations.origin import place_sample
from protopyramid.inference.requests import check_box, region_sample
from protopyramid.prototypes.cases import prototype_map
from protopyramid.runs import layout
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run

DECIMALS = 4  # of a contour, in fractions of the model's input


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


def explanation_json(explanation: Explanation, run_name: str) -> dict[str, Any]:
    """The explanation of the contract, with what a page needs in order to draw it.

    Beside the contract: `run`, `unlike_training`, `framing`, `input` (`size` of the model's input, and
    whether it is `mirrored` relative to the file), and per prototype `map` and `case`.
    """
    content = explanation.to_json()
    records = {record.index: record for record in explanation.run.prototypes}
    for part in content["prototypes"]:
        index = part["index"]
        part["map"] = map_json(
            prototype_map(explanation.run.model, explanation.evidence.maps, index)[0]
        )
        if index in records:
            part["case"] = _case_json(explanation.run, records[index], run_name)
    mirrored = explanation.origin is not None and explanation.origin.mapping.mirrored
    return {
        **content,
        "run": run_name,
        "unlike_training": explanation.unlike_training,
        "framing": explanation.framing,
        "input": {"size": len(explanation.picture), "mirrored": mirrored},
    }


def _case_json(run: Run, record: PrototypeRecord, run_name: str) -> dict[str, Any]:
    return {
        "image": record.image,
        "class": record.class_name,
        "box": list(record.box),
        "picture": picture_url(run_name, record.index),
        "pictured": run.cases.has_picture(record.index),
    }


def map_json(similarity: Tensor) -> dict[str, Any]:
    """A similarity map (h, w) as bytes from 0 at `low` to 255 at `high`, row by row, in base 64."""
    values = similarity.double().numpy()
    low, high = float(values.min()), float(values.max())
    levels = np.rint((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    rows, columns = values.shape
    text = base64.b64encode(levels.tobytes()).decode()
    return {"rows": rows, "columns": columns, "low": low, "high": high, "values": text}


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
    }


def run_json(run: Run, name: str) -> dict[str, Any]:
    """A run with its prototypes, their pictures and its model card."""
    card = run.folder / layout.CARD
    prototypes = [
        {**record.to_json(), "picture": picture_url(name, record.index)}
        for record in run.prototypes
    ]
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    return {**run_summary(run, name), "prototypes": prototypes, "card": text}


def picture_url(name: str, index: int) -> str:
    """Where the picture of a prototype's case is served."""
    return f"/api/runs/{quote(name, safe='')}/prototypes/{index}.png"


def case_contours(run: Run, indices: Sequence[int]) -> list[list[list[float]]]:
    """Where prototypes activate on their own cases: closed lines in fractions of the picture."""
    cases = run.cases.look_up(indices)
    return [[_flat(line) for line in cases[index].region.contour] for index in indices]
