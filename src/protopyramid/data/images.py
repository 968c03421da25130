"""From an image file to the model's input: reading, fitting to size and the one normalisation.

Coordinates are those of geometry.py.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from protopyramid.config.schema import DataConfig, DicomConfig
from protopyramid.data.geometry import (
    Box,
    Mask,
    clip_box,
    ellipse_mask,
    fit_mask,
    fit_planes,
    fit_transform,
    mirrored_box,
)
from protopyramid.data.io.decoding import READERS, decode, read_image, read_marks
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError

__all__ = [
    "LEVELS",
    "READERS",
    "Prepared",
    "content_hash",
    "denormalise",
    "file_hash",
    "normalise",
    "prepare",
    "prepare_sample",
    "read_image",
    "read_mask",
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
    annotation; box in pixels of the model's input, or None.
    """

    image: torch.Tensor
    mask: torch.Tensor | None
    box: Box | None


def read_mask(path: str | Path, size: tuple[int, int]) -> Mask:
    """The mask (H, W) of an image of that size: non-zero is inside.

    A mask of the same aspect but another size is resized with a warning. A JPEG mask is cut at
    half of the range, since compression leaves faint traces outside.
    """
    inside = read_marks(path)
    if inside.shape == size:
        return inside
    (height, width), (mask_height, mask_width) = size, inside.shape
    scale = min(height / mask_height, width / mask_width)
    if abs(height - mask_height * scale) > max(1, scale) or abs(width - mask_width * scale) > max(
        1, scale
    ):
        raise UserError(
            f"{path}: the mask is {mask_width} x {mask_height} but its image {width} x {height}; "
            "draw the mask on the image at the same size"
        )
    warnings.warn(
        f"{path}: the mask is {mask_width} x {mask_height} and was resized to its image's "
        f"{width} x {height}",
        stacklevel=2,
    )
    rows = ((np.arange(height) + 0.5) * mask_height / height).astype(int)
    columns = ((np.arange(width) + 0.5) * mask_width / width).astype(int)
    resized: Mask = inside[rows[:, None], columns]
    return resized


def prepare(image: Array, mask: Mask | None, box: Box | None, size: int, fit: str) -> Prepared:
    """Bring an image (H, W) or (H, W, 3), its mask (H, W) and its box to size x size.

    fit "stretch" ignores the aspect, "pad" keeps it and adds black on both sides. Values are
    rounded to steps of 1/65535, so that a 16-bit copy is the image exactly.
    """
    height, width = image.shape[:2]
    planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    fitted = fit_planes(torch.from_numpy(np.ascontiguousarray(planes)), size, fit)
    levels = (fitted.clamp(0, 1) * LEVELS).round()
    moved = None
    if box is not None:
        scale_x, scale_y, offset_x, offset_y = fit_transform(height, width, size, fit)
        x0, y0, x1, y1 = box
        moved = (
            x0 * scale_x + offset_x,
            y0 * scale_y + offset_y,
            x1 * scale_x + offset_x,
            y1 * scale_y + offset_y,
        )
    return Prepared(levels / LEVELS, None if mask is None else fit_mask(mask, size, fit), moved)


def prepare_sample(sample: Sample, data: DataConfig) -> Prepared:
    """The image of a sample at the size of the model's input, with its annotation.

    The annotation is the mask file, else the ellipse in the lesion box, else none; a sample of the
    negative class has one only by a mask file. Masks and boxes are of the image as its file holds it,
    and are mirrored with it where `data.dicom.flip` says so.
    """
    image, mirrored = decode(sample.image, data.dicom)
    height, width = image.shape[:2]
    mask = None if sample.mask is None else read_mask(sample.mask, (height, width))
    box = None if sample.box is None else clip_box(sample.box, height, width)
    if sample.box is not None and box is None:
        raise UserError(
            f"row {sample.row}, lesion box: outside its image {sample.name!r} of {width} x {height} "
            "pixels; give pixels of the image file"
        )
    if mirrored:
        mask = None if mask is None else mask[:, ::-1]
        box = None if box is None else mirrored_box(box, width)
    prepared = prepare(image, mask, box, data.image_size, data.fit)
    if prepared.mask is not None or prepared.box is None or sample.label == data.negative_class:
        return prepared
    ellipse = ellipse_mask(prepared.box, data.image_size, data.image_size)
    return Prepared(prepared.image, torch.from_numpy(ellipse.astype(np.uint8)), prepared.box)


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
