"""Where an explained image lies in its file: the region that the model saw, and the film around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopyramid.config.schema import DataConfig
from protopyramid.data.geometry import Box, Mapping, Region, Spacing
from protopyramid.data.images import Prepared, prepare_sample, thumbnail
from protopyramid.data.io.decoding import Decoded, decode, read_spacing
from protopyramid.data.manifest import Sample
from protopyramid.inference.requests import framing_problem
from protopyramid.runs.run import Run

EDGES = ("x0", "y0", "x1", "y1")
FILM_SIDE = 640  # pixels of the longer side of a film in a figure


@dataclass(frozen=True)
class Origin:
    """Where the model's input comes from.

    mapping: from pixels of the file to the input and back. film (H, W) or (H, W, 3) in [0, 1], small: the
    whole image, where the model saw a part of it, and `marked`, that part as fractions of it. framing: how
    the image differs in size from those of training, where it may be a whole film.
    """

    mapping: Mapping
    film: NDArray[np.float32] | None = field(default=None, repr=False)
    marked: Box | None = None
    framing: str | None = None

    def in_json(self, content: dict[str, Any]) -> dict[str, Any]:
        """An explanation's JSON with the region and the prototypes' boxes in pixels of the file."""
        region = dict(zip(EDGES, self.mapping.seen, strict=True))
        parts = [
            {**part, "box_pixels": list(self.mapping.fractions_to_file(tuple(part["box"])))}
            for part in content["prototypes"]
        ]
        return {**content, "region": region, "prototypes": parts}


def input_origin(size: int) -> Origin:
    """The origin of an image that is given at the size of the model's input."""
    return Origin(Mapping(Region.whole(size, size), size))


def open_sample(run: Run, sample: Sample, data: DataConfig) -> tuple[Prepared, Origin]:
    """What the model sees of a sample, and where it comes from."""
    return place_sample(
        run, sample, data, decode(sample.image, data.dicom), read_spacing(sample.image)
    )


def place_sample(
    run: Run, sample: Sample, data: DataConfig, decoded: Decoded, spacing: Spacing | None
) -> tuple[Prepared, Origin]:
    """The same of a sample whose image is decoded already; its file is not opened."""
    prepared = prepare_sample(sample, data, decoded)
    height, width = decoded.image.shape[:2]
    mapping = Mapping(
        prepared.mapping.region,
        data.image_size,
        data.fit,
        decoded.mirrored,
        spacing=spacing,
    )
    if mapping.region == Region.whole(height, width):
        return prepared, Origin(
            mapping, framing=framing_problem(run, sample, data, (height, width))
        )
    film = thumbnail(decoded.image, FILM_SIDE)
    return prepared, Origin(mapping, film, _on_film(mapping, height, width))


def _on_film(mapping: Mapping, height: int, width: int) -> Box:
    """The region as fractions of the film as it is shown, which may be mirrored."""
    x0, y0, x1, y1 = mapping.region.box
    if mapping.mirrored:
        x0, x1 = width - x1, width - x0
    return x0 / width, y0 / height, x1 / width, y1 / height
