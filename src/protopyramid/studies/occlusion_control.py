"""The occlusion control: the annotated part of every image filled in from its surroundings.

A model that looks at the margin fails without it. On phantoms nothing outside the annotated band tells
the margins apart, so AUROC must fall to chance; anything above it points to a leak in the data or the
model. Where there is a box and no mask, the whole box is filled; its size and surroundings remain.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.cropping import to_16_bits, to_grey
from protopyramid.data.images import read_image, read_mask
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import Sample, manifest_text, read_manifest
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import class_numbers, run_pass
from protopyramid.evaluation.split import evaluated_split
from protopyramid.metrics.auroc import class_aurocs, mean_of_known
from protopyramid.metrics.softmax import softmax
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run

SMOOTHINGS = 400  # of the membrane; on a band of a few pixels it has long converged by then


def occluded(images: Tensor, masks: Tensor) -> Tensor:
    """Images (B, H, W) whose masked pixels (B, H, W) bool are a smooth membrane over the others.

    The membrane (Laplace's equation with the unmasked pixels as boundary) depends on the surroundings
    alone: two images that are equal outside the mask become equal.
    """
    known = (~masks).to(images.dtype)[:, None]
    values = images[:, None] * known
    filled = torch.where(masks[:, None], _from_coarse(values, known), images[:, None])
    for _ in range(SMOOTHINGS):
        padded = F.pad(filled, (1, 1, 1, 1), mode="replicate")
        around = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1]
        around += padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
        filled = torch.where(masks[:, None], around / 4, images[:, None])
    return filled[:, 0]


def _from_coarse(values: Tensor, known: Tensor) -> Tensor:
    """A first guess for unknown pixels: means of the known ones over ever larger squares."""
    height, width = values.shape[-2:]
    if min(height, width) == 1:
        return values / known.clamp(min=1e-12)
    mean, share = (F.avg_pool2d(each, 2, ceil_mode=True) for each in (values, known))
    coarse = F.interpolate(_from_coarse(mean, share), (height, width), mode="nearest")
    return torch.where(known > 0, values / known.clamp(min=1e-12), coarse)


def write_occluded(manifest: Path, folder: Path, split: str = "test") -> Path:
    """Write the annotated images of a split with the annotated part occluded; returns their manifest."""
    target = folder / "manifest.csv"
    if target.is_file():
        return target
    table = read_manifest(manifest)
    rows = [sample for sample in table.split(split) if sample.mask or sample.box]
    if not rows:
        raise UserError(
            f"{manifest}: no image of split {split} has a mask or a box; "
            "set occlusion_control = false"
        )
    out = RunFolder(folder)
    written = []
    for number, sample in enumerate(rows):
        name = f"images/{number:05d}.png"
        out.write_bytes(name, _picture(sample))
        written.append(replace(sample, image=folder / name, mask=None))
    chosen = replace(table, samples=tuple(written))
    return out.write_text(target.name, manifest_text(chosen, folder))


def _picture(sample: Sample) -> bytes:
    grey = to_grey(read_image(sample.image))
    mask = torch.from_numpy(_annotated(sample, (grey.shape[0], grey.shape[1])))
    return grey_png(occluded(torch.from_numpy(grey)[None], mask[None])[0].numpy())


def grey_png(image: NDArray[np.float32]) -> bytes:
    """A grey image (H, W) from 0 to 1 as a 16-bit PNG."""
    return png_bytes(to_16_bits(image))


def _annotated(sample: Sample, size: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of an image of size (height, width) or, without one, its lesion box."""
    if sample.mask is not None:
        return read_mask(sample.mask, size)
    assert sample.box is not None
    x0, y0, x1, y1 = (round(value) for value in sample.box)
    mask = np.zeros(size, dtype=np.bool_)
    mask[max(y0, 0) : y1, max(x0, 0) : x1] = True
    return mask


def occluded_auroc(run: Run, manifest: Path, split: str = "test") -> float | None:
    """Macro AUROC over the margins of a run on the images of `write_occluded`."""
    chosen = evaluated_split(run, manifest, split)
    labels: NDArray[np.int64] = class_numbers(run, chosen)
    probabilities = softmax(run_pass(run, chosen, labels).logits.numpy())
    data = run.config.data
    return mean_of_known(class_aurocs(probabilities, labels, data.classes, data.negative_class))
