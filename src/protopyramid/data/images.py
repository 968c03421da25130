"""From an image file to the model's input: reading, fitting to size and the one normalisation.

Pixels are squares: the centre of the first one is at .5, and a box (x0, y0, x1, y1) is in the same
coordinates, so that the whole image is (0, 0, width, height).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from protopyramid.config.schema import DataConfig, DicomConfig
from protopyramid.data.io.decoding import READERS, decode, read_image
from protopyramid.data.manifest import Box, Sample
from protopyramid.data.masks import read_mask
from protopyramid.errors import UserError

__all__ = [
    "LEVELS",
    "READERS",
    "Prepared",
    "clip_box",
    "content_hash",
    "denormalise",
    "ellipse_mask",
    "file_hash",
    "fit_transform",
    "normalise",
    "prepare",
    "prepare_sample",
    "read_image",
    "read_mask",
]

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

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


def ellipse_mask(box: Box, height: int, width: int) -> Mask:
    """The ellipse inscribed in a box, as a mask (height, width); never empty inside the image."""
    x0, y0, x1, y1 = box
    x = (np.arange(width) + 0.5 - (x0 + x1) / 2) / ((x1 - x0) / 2)
    y = (np.arange(height) + 0.5 - (y0 + y1) / 2) / ((y1 - y0) / 2)
    inside: Mask = x**2 + y[:, None] ** 2 <= 1
    if not inside.any():
        row = min(max(int((y0 + y1) / 2), 0), height - 1)
        column = min(max(int((x0 + x1) / 2), 0), width - 1)
        inside[row, column] = True
    return inside


def clip_box(box: Box, height: int, width: int) -> Box | None:
    """The part of a box inside the image, or None when there is none."""
    x0, y0 = max(box[0], 0.0), max(box[1], 0.0)
    x1, y1 = min(box[2], float(width)), min(box[3], float(height))
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def fitted_size(height: int, width: int, size: int, fit: str) -> tuple[int, int]:
    """Height and width of the image within the model's input."""
    if fit == "stretch":
        return size, size
    longest = max(height, width)
    return max(1, round(height * size / longest)), max(1, round(width * size / longest))


def fit_transform(
    height: int, width: int, size: int, fit: str
) -> tuple[float, float, float, float]:
    """scale_x, scale_y, offset_x, offset_y: input = scale * file + offset, in pixels.

    >>> fit_transform(100, 200, 50, "stretch")
    (0.25, 0.5, 0, 0)
    >>> fit_transform(100, 200, 50, "pad")
    (0.25, 0.25, 0, 12)
    """
    high, wide = fitted_size(height, width, size, fit)
    return wide / width, high / height, (size - wide) // 2, (size - high) // 2


def prepare(image: Array, mask: Mask | None, box: Box | None, size: int, fit: str) -> Prepared:
    """Bring an image (H, W) or (H, W, 3), its mask (H, W) and its box to size x size.

    fit "stretch" ignores the aspect, "pad" keeps it and adds black on both sides. Values are
    rounded to steps of 1/65535, so that a 16-bit copy is the image exactly.
    """
    height, width = image.shape[:2]
    planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    fitted = _fit(torch.from_numpy(np.ascontiguousarray(planes)), size, fit)
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
    return Prepared(levels / LEVELS, None if mask is None else _fit_mask(mask, size, fit), moved)


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
        box = None if box is None else (width - box[2], box[1], width - box[0], box[3])
    prepared = prepare(image, mask, box, data.image_size, data.fit)
    if prepared.mask is not None or prepared.box is None or sample.label == data.negative_class:
        return prepared
    ellipse = ellipse_mask(prepared.box, data.image_size, data.image_size)
    return Prepared(prepared.image, torch.from_numpy(ellipse.astype(np.uint8)), prepared.box)


def _fit(planes: torch.Tensor, size: int, fit: str) -> torch.Tensor:
    """Planes (C, H, W) resized with antialiasing and padded with zeros to (C, size, size)."""
    height, width = planes.shape[1:]
    high, wide = fitted_size(height, width, size, fit)
    if (high, wide) != (height, width):
        planes = interpolate(planes[None], (high, wide), mode="bilinear", antialias=True)[0]
    if (high, wide) == (size, size):
        return planes
    top, left = (size - high) // 2, (size - wide) // 2
    padded = planes.new_zeros(planes.shape[0], size, size)
    padded[:, top : top + high, left : left + wide] = planes
    return padded


def _fit_mask(mask: Mask, size: int, fit: str) -> torch.Tensor:
    """Pixels at least half covered; where none is (a tiny lesion), the most covered."""
    coverage = _fit(torch.from_numpy(mask.astype(np.float32))[None], size, fit)[0]
    least = min(0.5, float(coverage.max())) if mask.any() else 0.5
    return (coverage >= least).to(torch.uint8)


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
