"""From an image file to the model's input: reading, fitting to size and the one normalisation.

Coordinates are those of geometry.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from protopyramid.config.schema import DataConfig, DicomConfig, MarginBandConfig
from protopyramid.data.geometry import (
    Box,
    Mapping,
    Mask,
    Region,
    clip_box,
    cut,
    ellipse_mask,
    extent,
    square_around,
)
from protopyramid.data.io.decoding import READERS, Decoded, decode, read_image
from protopyramid.data.manifest import Sample
from protopyramid.data.masks import margin_band, read_mask
from protopyramid.errors import UserError

__all__ = [
    "LEVELS",
    "READERS",
    "Prepared",
    "content_hash",
    "denormalise",
    "file_hash",
    "hash_files",
    "margin_of",
    "normalise",
    "prepare",
    "prepare_region",
    "prepare_sample",
    "read_image",
    "read_mask",
    "seen_region",
    "thumbnail",
]

Array = NDArray[np.float32]

LEVELS = (
    65535  # prepared images lie on this many steps from 0 to 1, so that 16 bits keep them exactly
)
AS_STORED = DicomConfig(
    window="full", flip="none"
)  # what a DICOM file holds, whatever the settings


@dataclass(frozen=True)
class Prepared:
    """An image at the size of the model's input.

    image (C, S, S) float32 in [0, 1], C 1 or 3; mask (S, S) uint8, 1 = inside, or None without an
    annotation; box in pixels of the model's input, or None; mapping: where it lies in its file.
    """

    image: torch.Tensor
    mask: torch.Tensor | None
    box: Box | None
    mapping: Mapping


def prepare(image: Array, mask: Mask | None, box: Box | None, size: int, fit: str) -> Prepared:
    """Bring an image (H, W) or (H, W, 3), its mask (H, W) and its box to size x size.

    fit "stretch" ignores the aspect, "pad" keeps it and adds black on both sides. Values are
    rounded to steps of 1/65535, so that a 16-bit copy is the image exactly.
    """
    height, width = image.shape[:2]
    return prepare_region(image, mask, box, Mapping(Region.whole(height, width), size, fit))


def prepare_region(image: Array, mask: Mask | None, box: Box | None, mapping: Mapping) -> Prepared:
    """Bring the region of an image (H, W) or (H, W, 3), its mask (H, W) and its box to the input.

    All three as the file holds them. Beyond the image's edge the region is black. A crop has the steps
    of a 16-bit file, so that a film and the crops that an import makes of it are the same input.
    """
    inner = mapping
    if mapping.region != Region.whole(*image.shape[:2]):
        crop = np.asarray(cut(image, mapping.region), np.float32)
        image = np.rint(np.clip(crop, 0, 1) * LEVELS).astype(np.float32) / np.float32(LEVELS)
        mask = None if mask is None else np.asarray(cut(mask, mapping.region), np.bool_)
        inner = replace(mapping, region=Region.whole(*image.shape[:2]))
    levels = (inner.image_to_input(image).clamp(0, 1) * LEVELS).round()
    return Prepared(
        levels / LEVELS,
        None if mask is None else inner.mask_to_input(mask),
        None if box is None else mapping.box_to_input(box),
        mapping,
    )


def prepare_sample(sample: Sample, data: DataConfig, decoded: Decoded | None = None) -> Prepared:
    """What the model sees of a sample, at the size of its input, with its annotation.

    That is the sample's own region, or with `data.crop` "lesion" the square around its lesion, or the
    whole image. The annotation is the mask file, else the ellipse in the lesion box, else none; a sample
    of the negative class has one only by a mask file. With `data.annotation` "margin" it is the band
    around the outline of that. Masks and boxes are of the image as its file holds
    it, and are mirrored with it where `data.dicom.flip` says so. `decoded` is the image, where it is
    known already.
    """
    image, mirrored = decoded or decode(sample.image, data.dicom)
    image = image[:, ::-1] if mirrored else image  # as the file holds it
    height, width = image.shape[:2]
    mask = None if sample.mask is None else read_mask(sample.mask, (height, width))
    box = _lesion_box(sample, mask, data, height, width)
    region = seen_region(sample, box, data, height, width)
    mapping = Mapping(region, data.image_size, data.fit, mirrored)
    if data.annotation == "margin":
        lesion = None if sample.label == data.negative_class else box
        band = margin_of(mask, lesion, height, width, data.margin_band)
        return _without_empty_band(prepare_region(image, band, box, mapping), mask)
    prepared = prepare_region(image, mask, box, mapping)
    if prepared.mask is not None or prepared.box is None or sample.label == data.negative_class:
        return prepared
    ellipse = ellipse_mask(prepared.box, data.image_size, data.image_size)
    return replace(prepared, mask=torch.from_numpy(ellipse.astype(np.uint8)))


def margin_of(
    mask: Mask | None, box: Box | None, height: int, width: int, band: MarginBandConfig
) -> Mask | None:
    """The band (height, width) around a lesion's mask, or without one around the ellipse in its box.

    The ellipse only stands for an outline that nobody has drawn, so its band is wider.
    """
    if mask is not None:
        return margin_band(mask, band.inner, band.outer)
    if box is None:
        return None
    return margin_band(ellipse_mask(box, height, width), band.box_inner, band.box_outer)


def _without_empty_band(prepared: Prepared, lesion: Mask | None) -> Prepared:
    """Without an annotation where none of a lesion's margin is seen: it says nothing of where to look.

    An empty mask file says that there is no lesion, and stays.
    """
    if prepared.mask is None or prepared.mask.any() or (lesion is not None and not lesion.any()):
        return prepared
    return replace(prepared, mask=None)


def seen_region(
    sample: Sample, box: Box | None, data: DataConfig, height: int, width: int
) -> Region:
    """The part of an image (height, width) that the model sees, given the lesion box inside it."""
    if sample.region is not None:
        if not sample.region.overlaps(height, width):
            raise UserError(
                f"{sample.name}: the region {sample.region} is outside the image of {width} x {height} "
                "pixels; give x0,y0,x1,y1 in pixels of the image file"
            )
        return sample.region
    if data.crop == "lesion" and box is not None:
        return square_around(box, data.region.margin, height, width)
    return Region.whole(height, width)


def _lesion_box(
    sample: Sample, mask: Mask | None, data: DataConfig, height: int, width: int
) -> Box | None:
    """The part of the lesion box inside the image; where lesions are cut, else that of the mask."""
    if sample.box is not None:
        box = clip_box(sample.box, height, width)
        if box is None:
            where = f"row {sample.row}, lesion box" if sample.row else "lesion box"
            raise UserError(
                f"{where}: outside its image {sample.name!r} of {width} x {height} pixels; "
                "give pixels of the image file"
            )
        return box
    if data.crop == "lesion" and mask is not None and mask.any():
        return extent(mask)
    return None


def thumbnail(image: Array, longest: int) -> Array:
    """An image (H, W) or (H, W, 3) whose longer side has at most `longest` pixels."""
    height, width = image.shape[:2]
    share = min(1.0, longest / max(height, width))
    size = max(1, round(height * share)), max(1, round(width * share))
    planes = torch.from_numpy(
        np.ascontiguousarray(image[None] if image.ndim == 2 else image.transpose(2, 0, 1))
    )
    small = interpolate(planes[None], size, mode="bilinear", antialias=True)[0].numpy()
    return small[0] if image.ndim == 2 else small.transpose(1, 2, 0)


def normalise(images: torch.Tensor, data: DataConfig) -> torch.Tensor:
    """Images (B, C, S, S) in [0, 1], C 1 or 3, as the network takes them: (B, 3, S, S).

    The one normalisation of training, projection and prediction; grey is repeated.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"expected images (B, 1 or 3, S, S), got {tuple(images.shape)}")
    return (images - _channels(data.mean, images)) / _channels(data.std, images)


def denormalise(images: torch.Tensor, data: DataConfig) -> torch.Tensor:
    """Back from normalised images (B, 3, S, S) to [0, 1], for pictures."""
    return (images * _channels(data.std, images) + _channels(data.mean, images)).clamp(0, 1)


def _channels(values: tuple[float, float, float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(3, 1, 1)


def content_hash(image: Array) -> str:
    """Hash of what an image (H, W) or (H, W, 3) shows, whatever its file format or bit depth."""
    if image.ndim == 3 and (image == image[..., :1]).all():
        image = image[..., 0]
    levels = np.rint(image * np.float32(LEVELS)).astype("<u2")
    return hashlib.sha256(repr(levels.shape).encode() + levels.tobytes()).hexdigest()


def file_hash(path: str | Path) -> str:
    """The content hash of a file's image, the same under all settings, for the search of leaks."""
    return content_hash(read_image(path, AS_STORED))


def hash_files(paths: Sequence[Path], workers: int) -> list[str]:
    """The content hashes of files in their order; a file that is named twice is decoded once."""
    once = list(dict.fromkeys(paths))
    with ThreadPoolExecutor(workers) as pool:
        hashes = dict(zip(once, pool.map(file_hash, once), strict=True))
    return [hashes[path] for path in paths]
