"""Cases: the training images that prototypes come from, as the run folder keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.images import prepare, read_image
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.activation import Box, Region, activation_region
from protopyramid.model.cells import cell_box
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.runs import layout
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run

BATCH = 8

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """A prototype with the training image it comes from.

    image (S, S) or (S, S, 3) in [0, 1]; region: where the prototype activates on that image; cell: the
    square of the image that the prototype was taken from, as fractions x0, y0, x1, y1.
    """

    record: PrototypeRecord
    image: Picture
    region: Region
    cell: Box


class CaseBook:
    """The cases of a run, each read and passed through the model once, when it is first needed.

    A run keeps its book (`run.cases`): another model is another run, with a book of its own.
    """

    def __init__(self, run: Run) -> None:
        self._folder, self._data, self._model = run.folder, run.config.data, run.model
        self._records = {record.index: record for record in run.prototypes}
        self._cases: dict[int, Case] = {}

    def look_up(self, indices: Iterable[int]) -> dict[int, Case]:
        """The cases of these prototypes, by index."""
        wanted = list(dict.fromkeys(indices))
        missing = [index for index in wanted if index not in self._cases]
        for start in range(0, len(missing), BATCH):
            self._add(missing[start : start + BATCH])
        return {index: self._cases[index] for index in wanted}

    def source(self, index: int) -> Tensor:
        """The source image of a prototype at the size of the model's input: (C, S, S) in [0, 1]."""
        if index not in self._records:
            raise UserError(
                f"{self._folder / layout.PROTOTYPES}: no prototype {index}; the run is damaged"
            )
        image = read_image(self._folder / layout.picture(index))
        return prepare(image, None, None, self._data.image_size, self._data.fit).image

    def _add(self, indices: Sequence[int]) -> None:
        sources = [self.source(index) for index in indices]
        images = torch.stack([source.expand(3, -1, -1) for source in sources])
        ready = model_input(images, self._data, device_of(self._model))
        with torch.inference_mode():
            maps = self._model.forward_once(ready).maps
        size = self._data.image_size
        for row, (index, source) in enumerate(zip(indices, sources, strict=True)):
            similarity = prototype_map(self._model, maps, index)[row].cpu()
            region = activation_region(similarity, size, size)
            record = self._records[index]
            cell = cell_box(record.row, record.col, *similarity.shape)
            self._cases[index] = Case(record, to_picture(source), region, cell)


def layer_of(model: PrototypeNetwork) -> PrototypeLayer:
    """The prototype layer of a model that has one."""
    if model.prototypes is None:
        raise UserError(
            "this model is a black box: it has no prototypes; use a run of another preset"
        )
    return model.prototypes


def prototype_map(model: PrototypeNetwork, maps: Mapping[int, Tensor], index: int) -> Tensor:
    """The similarity maps of one prototype: {level: (B, m_level, H, W)} -> (B, H, W)."""
    layer = layer_of(model)
    level = int(layer.levels[index])
    return maps[level][:, index - layer.slices[level].start]


def to_picture(image: Tensor) -> Picture:
    """An image (C, S, S) as an array to draw: (S, S), or (S, S, 3) if it has colour."""
    values: Picture = image.detach().cpu().numpy().astype(np.float32)
    return values[0] if len(values) == 1 else np.ascontiguousarray(values.transpose(1, 2, 0))


def from_picture(picture: Picture) -> Tensor:
    """The image (C, S, S) of a picture (S, S) or (S, S, 3)."""
    planes = picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(planes))
