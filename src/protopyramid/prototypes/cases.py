"""Cases: the training images that prototypes come from, as the run folder keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import prepare, read_image
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.activation import activation_maps
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run

BATCH = 8

Picture = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """A prototype with the image it comes from.

    image (S, S) or (S, S, 3) in [0, 1]; activation (S, S), the prototype's own activation map there.
    """

    record: PrototypeRecord
    image: Picture
    activation: Picture


class CaseBook:
    """The cases of a run, each read and passed through the model once, when it is first asked for."""

    def __init__(
        self, folder: RunFolder, records: Sequence[PrototypeRecord], data: DataConfig, version: int
    ) -> None:
        self.folder, self.data, self.version = folder, data, version
        self.records = {record.index: record for record in records}
        self._known: dict[int, Case] = {}

    def cases(self, model: PrototypeNetwork, indices: Iterable[int]) -> dict[int, Case]:
        """The cases of these prototypes by index."""
        wanted = list(dict.fromkeys(indices))
        missing = [index for index in wanted if index not in self._known]
        for start in range(0, len(missing), BATCH):
            self._look_up(model, missing[start : start + BATCH])
        return {index: self._known[index] for index in wanted}

    def source(self, index: int) -> Tensor:
        """The source image of a prototype at the size of the model's input: (C, S, S) in [0, 1]."""
        if index not in self.records:
            raise UserError(
                f"{self.folder / 'prototypes.json'}: no prototype {index}; the run is damaged"
            )
        image = read_image(self.folder / layout.picture(index))
        return prepare(image, None, None, self.data.image_size, self.data.fit).image

    def _look_up(self, model: PrototypeNetwork, indices: Sequence[int]) -> None:
        sources = [self.source(index) for index in indices]
        images = torch.stack([source.expand(3, -1, -1) for source in sources])
        with torch.inference_mode():
            maps = model.forward_once(model_input(images, self.data, device_of(model))).maps
        for number, (index, source) in enumerate(zip(indices, sources, strict=True)):
            own = prototype_map(model, maps, index)[number]
            self._known[index] = Case(
                self.records[index], to_picture(source), upsampled(own, self.data.image_size)
            )


_BOOKS: WeakKeyDictionary[PrototypeNetwork, CaseBook] = WeakKeyDictionary()


def case_book(run: Run) -> CaseBook:
    """The cases of a run; the same book is given again as long as its prototypes stay the same."""
    version = layer_of(run.model).vectors._version
    book = _BOOKS.get(run.model)
    if book is None or book.version != version or book.folder.path != run.folder.path:
        book = CaseBook(run.folder, run.prototypes, run.config.data, version)
        _BOOKS[run.model] = book
    return book


def layer_of(model: PrototypeNetwork) -> PrototypeLayer:
    """The prototype layer of a model that has one."""
    if model.prototypes is None:
        raise UserError("this model is a black box without prototypes; use another preset's run")
    return model.prototypes


def prototype_map(model: PrototypeNetwork, maps: Mapping[int, Tensor], index: int) -> Tensor:
    """The similarity maps of one prototype: {level: (B, m_level, H, W)} -> (B, H, W)."""
    layer = layer_of(model)
    level = int(layer.levels[index])
    return maps[level][:, index - layer.slices[level].start]


def upsampled(similarity: Tensor, size: int) -> Picture:
    """A similarity map (H, W) as an activation map (size, size)."""
    full: Picture = activation_maps(similarity[None, None].float(), size, size)[0, 0].cpu().numpy()
    return full


def to_picture(image: Tensor) -> Picture:
    """An image (C, S, S) as an array to draw: (S, S), or (S, S, 3) where it has colour."""
    values: Picture = image.detach().cpu().numpy().astype(np.float32)
    return values[0] if len(values) == 1 else np.ascontiguousarray(values.transpose(1, 2, 0))


def from_picture(picture: Picture) -> Tensor:
    """The image (C, S, S) of a picture (S, S) or (S, S, 3)."""
    planes = picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(planes))
