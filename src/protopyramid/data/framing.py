"""The size of the images that a model was trained on, to notice a whole film given to a model of crops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pydantic import BaseModel, ConfigDict

from protopyramid.config.schema import DataConfig
from protopyramid.data.geometry import clip_box
from protopyramid.data.images import seen_region
from protopyramid.data.io.decoding import read_size
from protopyramid.data.manifest import Sample

WORKERS = 4
# An image this many times longer than the longest training image is framed differently.
SIZE_TOLERANCE = 3.0
ASPECT_TOLERANCE = 1.25

Range = tuple[float, float, float]  # lowest, median, highest


class Framing(BaseModel):
    """What the model sees of its training images: longer side in pixels of the file, width / height.

    Each as lowest, median and highest value.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    longer_side: Range
    aspect: Range

    def mismatch(self, width: float, height: float) -> str | None:
        """How an image that is seen whole differs from the training images; None if it does not."""
        low, _, high = self.aspect
        odd = not low / ASPECT_TOLERANCE <= width / height <= high * ASPECT_TOLERANCE
        if max(width, height) <= SIZE_TOLERANCE * self.longer_side[2] and not odd:
            return None
        short, _, long = self.longer_side
        sides = f"{short:.0f} to {long:.0f}" if short < long else f"{long:.0f}"
        return (
            f"{width:.0f} x {height:.0f} pixels, but the model was trained on images of {sides} pixels: "
            "a whole film?"
        )


def training_framing(samples: Sequence[Sample], data: DataConfig) -> Framing | None:
    """The framing of training images, by their headers and lesion boxes; None if no header gives a size."""
    sizes = np.array(list(_seen_sizes(samples, data)), float).reshape(-1, 2)
    if not len(sizes):
        return None
    return Framing(longer_side=_range(sizes.max(1)), aspect=_range(sizes[:, 0] / sizes[:, 1]))


def _seen_sizes(samples: Sequence[Sample], data: DataConfig) -> Iterator[tuple[int, int]]:
    """Width and height of what the model sees of each sample, where it is known without decoding."""
    paths = list(dict.fromkeys(sample.image for sample in samples))
    with ThreadPoolExecutor(WORKERS) as pool:
        sizes = dict(zip(paths, pool.map(read_size, paths), strict=True))
    for sample in samples:
        size = sizes[sample.image]
        if size is None or (data.crop == "lesion" and sample.box is None and sample.mask):
            continue
        box = None if sample.box is None else clip_box(sample.box, *size)
        region = seen_region(sample, box, data, *size)
        yield region.width, region.height


def _range(values: np.ndarray) -> Range:
    low, middle, high = (round(float(each), 4) for each in np.quantile(values, [0, 0.5, 1]))
    return low, middle, high
