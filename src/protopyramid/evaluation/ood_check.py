"""Does the out-of-distribution (OOD) flag of `predict` work? Flag rates on made-up OOD images.

Some kinds are not mammograms at all, others are test images with a simulated acquisition fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pydantic import Field
from torch import Tensor

from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.ood import FALSE_FLAGS, Limits, limits_for, ood_features
from protopyramid.utils import typed_json

if TYPE_CHECKING:
    from protopyramid.evaluation.split import EvaluatedSplit
    from protopyramid.runs.run import Run

IMAGES = 24  # of each kind
LETTERS = list("the quick brown fox jumps over a lazy dog 0123456789")
SHIFT = 0.3  # brightness, of a range of 1
BLUR = 0.1  # side of the blurring square, as a share of the image's


@dataclass(frozen=True)
class FlagRates:
    """The share of images flagged: of a split (`nominal` is expected) and of each OOD kind."""

    nominal: float
    images: int
    in_distribution: Annotated[float, Field(alias="ordinary")]
    ood_images: Annotated[int, Field(alias="strange_images")]
    ood: Annotated[Mapping[str, float], Field(alias="strange")]

    def to_json(self) -> dict[str, Any]:
        """The content of evaluation/SPLIT-flags.json."""
        content: dict[str, Any] = typed_json.to_json(self)
        return content


def flag_rates(run: Run, chosen: EvaluatedSplit, seed: int = 0) -> FlagRates:
    """How many images of a split and of each OOD kind a run flags."""
    limits = limits_for(run)
    if limits is None:
        path = run.folder.path
        raise UserError(
            f"{path}: has no thresholds.json of this version, so no image is flagged; "
            f"compute it with: protopyramid evaluate {path} --split validation"
        )
    store = ImageStore(chosen.samples, run.config.data.model_copy(update={"memory_budget": 0.0}))
    size, total = run.config.train.eval_batch_size, len(store)
    flags = [
        flagged(run, limits, store.load(list(range(start, min(start + size, total)))).images)
        for start in range(0, total, size)
    ]
    some = np.linspace(0, total - 1, min(IMAGES, total)).astype(int).tolist()
    kinds = ood_images(store.load(some).images, seed)
    return FlagRates(
        nominal=FALSE_FLAGS,
        images=total,
        in_distribution=float(np.concatenate(flags).mean()),
        ood_images=len(some),
        ood={name: float(flagged(run, limits, x).mean()) for name, x in kinds.items()},
    )


def flagged(run: Run, limits: Limits, images: Tensor) -> NDArray[np.bool_]:
    """Which images (B, C, S, S) in [0, 1] are out of distribution. -> (B,)."""
    run.model.eval()
    with torch.inference_mode():
        evidence = run.model(model_input(images, run.config.data, device_of(run.model)))
    features = ood_features(images, evidence.scores, evidence.closeness)
    return np.asarray(limits.relative_distance(features) > 1)


def ood_images(images: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """As many images of every OOD kind as there are images (B, C, S, S) in [0, 1]."""
    count, size = len(images), images.shape[-1]
    rng = np.random.default_rng(seed)
    side = max(3, round(BLUR * size) | 1)
    spread = F.pad(images, [side // 2] * 4, mode="replicate")
    return {
        "constant": _stack([np.full((size, size), v) for v in np.linspace(0, 1, count)]),
        "noise": _stack([rng.random((size, size)) for _ in range(count)]),
        "checkerboard": _stack([_checkerboard(size, rng) for _ in range(count)]),
        "text": _stack([_text(size, rng) for _ in range(count)]),
        "shapes": _stack([_shapes(size, rng) for _ in range(count)]),
        "inverted": 1 - images,
        "brighter": (images + SHIFT).clamp(0, 1),
        "darker": (images - SHIFT).clamp(0, 1),
        "blurred": F.avg_pool2d(spread, side, 1),
    }


def _stack(pictures: list[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.stack(pictures))[:, None].float()


def _checkerboard(size: int, rng: np.random.Generator) -> NDArray[Any]:
    row, col = np.mgrid[:size, :size] // int(rng.integers(2, size // 4))
    return np.asarray((row + col) % 2, dtype=np.float64)


def _text(size: int, rng: np.random.Generator) -> NDArray[Any]:
    paper = int(rng.choice([0, 255]))
    picture = Image.new("L", (size, size), paper)
    draw = ImageDraw.Draw(picture)
    for y in range(2, size, 12):
        draw.text((3, y), "".join(rng.choice(LETTERS, size // 6)), fill=255 - paper)
    return np.asarray(picture) / 255


def _shapes(size: int, rng: np.random.Generator) -> NDArray[Any]:
    picture = Image.new("L", (size, size), int(rng.integers(256)))
    draw = ImageDraw.Draw(picture)
    for kind in (draw.rectangle, draw.ellipse) * 3:
        (x0, x1), (y0, y1) = np.sort(rng.integers(0, size, (2, 2)), axis=1).tolist()
        kind((x0, y0, x1, y1), fill=int(rng.integers(256)))
    return np.asarray(picture) / 255
