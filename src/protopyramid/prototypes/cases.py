"""Cases: the training images that prototypes come from, as the run folder keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
from protopyramid.prototypes.placeholder import blank, box_region, case_words, placeholder_png
from protopyramid.runs import layout
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run
from protopyramid.utils.opening import IMAGE, is_file, is_folder, read_file

BATCH = 8
PAGE = 448  # pixels, at least, of the page that stands for a picture

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """A prototype with the training image it comes from.

    image (S, S) or (S, S, 3) in [0, 1]; region: where the prototype activates on that image; cell: the
    square of the image that the prototype was taken from, as fractions x0, y0, x1, y1; pictured: whether the
    run has the image. If not, `image` is blank, and the region is the box that is known.
    """

    record: PrototypeRecord
    image: Picture
    region: Region
    cell: Box
    pictured: bool = True

    @property
    def note(self) -> str:
        """What to write where the picture is missing, in lines; "" where it is there."""
        return "" if self.pictured else "\n".join(case_words(self.record, self.cell))


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
        if not self.has_picture(index):
            raise UserError(
                f"{self._folder / layout.picture(index)}: this model was shared without pictures; put them "
                "back with: protopyramid models attach NAME --data MANIFEST"
            )
        image = read_image(self._folder / layout.picture(index))
        return prepare(image, None, None, self._data.image_size, self._data.fit).image

    def has_picture(self, index: int) -> bool:
        """Whether the run has the source image of a prototype; a model may be shared without."""
        return is_file(self._folder / layout.picture(index))

    def pictured(self) -> set[int]:
        """The prototypes whose source images the run has, by one look at its folder."""
        folder = self._folder / layout.PICTURES
        if not is_folder(folder):
            return set()
        with os.scandir(folder) as entries:
            there = {f"{layout.PICTURES}/{entry.name}" for entry in entries if entry.is_file()}
        return {index for index in self._records if layout.picture(index) in there}

    def png(self, index: int) -> bytes:
        """The source image of a prototype as PNG, or the page that stands for it."""
        if self.has_picture(index):
            return read_file(self._folder / layout.picture(index), IMAGE)
        return placeholder_png(self._records[index], max(self._data.image_size, PAGE))

    def _add(self, indices: Sequence[int]) -> None:
        for index in indices:
            if index in self._records and not self.has_picture(index):
                self._cases[index] = self._without_picture(self._records[index])
        self._add_pictured([index for index in indices if index not in self._cases])

    def _without_picture(self, record: PrototypeRecord) -> Case:
        size = self._data.image_size
        cell = cell_box(record.row, record.col, *self._map_sizes[record.level])
        return Case(record, blank(size), box_region(record.box, size), cell, pictured=False)

    @cached_property
    def _map_sizes(self) -> dict[int, tuple[int, int]]:
        """The height and width of each level's maps, as one pass of an empty image gives them."""
        size = self._data.image_size
        empty = torch.zeros(1, 3, size, size, device=device_of(self._model))
        with torch.inference_mode():
            maps = self._model.forward_once(empty).maps
        return {level: (each.shape[-2], each.shape[-1]) for level, each in maps.items()}

    def _add_pictured(self, indices: Sequence[int]) -> None:
        if not indices:
            return
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
