"""The shift test: do prototypes follow the lesion, or do they look at the centre of the image?

Crops are cut around their lesions, so a prototype that has learned to look at the centre has a high
lesion precision too. Here every image is shifted by a quarter of its side towards a corner, and its box
along with it; the uncovered strip is filled with a mirror image. A prototype that looks at the lesion
follows it. One that does not would have the precision of the unshifted images against the shifted boxes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.cropping import to_grey
from protopyramid.data.geometry import Box, clip_box
from protopyramid.data.images import read_image
from protopyramid.data.manifest import Sample, manifest_text, read_manifest
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import class_numbers, run_pass
from protopyramid.evaluation.split import evaluated_split, patients
from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.metrics.localisation import summarise
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.studies.occlusion_control import grey_png

SHIFTED, STAYED = "moved.csv", "stayed.csv"
SHARE = 0.25  # of the side
CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))  # x, y; the images take turns


def shifted_image(image: NDArray[np.float32], right: int, down: int) -> NDArray[np.float32]:
    """An image (H, W) shifted by some pixels; the uncovered strip mirrors what lies beside it.

    >>> shifted_image(np.array([[1.0, 2.0, 3.0]], dtype=np.float32), 1, 0).tolist()
    [[1.0, 1.0, 2.0]]
    """
    height, width = image.shape
    padded = np.pad(image, ((abs(down), abs(down)), (abs(right), abs(right))), mode="symmetric")
    top, left = abs(down) - down, abs(right) - right
    return padded[top : top + height, left : left + width]


def shifted_box(box: Box, right: int, down: int, size: tuple[int, int]) -> Box | None:
    """A box shifted likewise, clipped to an image of size (height, width); None outside it."""
    x0, y0, x1, y1 = box
    return clip_box((x0 + right, y0 + down, x1 + right, y1 + down), *size)


def write_shifted(manifest: Path, folder: Path, split: str = "test") -> tuple[Path, Path]:
    """Write the images of a split that have a box, shifted, and two manifests with the shifted boxes.

    The first manifest lists the shifted images, the second the unshifted ones. A lesion so near to an
    edge that it would leave its image is left out.
    """
    targets = (folder / SHIFTED, folder / STAYED)
    if all(target.is_file() for target in targets):
        return targets
    table = read_manifest(manifest)
    rows = [sample for sample in table.split(split) if sample.box]
    if not rows:
        raise UserError(f"{manifest}: no image of split {split} has a box; set shift_test = false")
    out = RunFolder(folder)
    shifted, stayed = [], []
    for number, sample in enumerate(rows):
        name = f"images/{number:05d}.png"
        picture, box = _shifted(sample, CORNERS[number % len(CORNERS)])
        if box is None:
            continue
        out.write_bytes(name, grey_png(picture))
        shifted.append(replace(sample, image=folder / name, mask=None, box=box))
        stayed.append(replace(sample, mask=None, box=box))
    for target, samples in zip(targets, (shifted, stayed), strict=True):
        chosen = replace(table, samples=tuple(samples))
        out.write_text(target.name, manifest_text(chosen, folder))
    return targets


def _shifted(sample: Sample, corner: tuple[int, int]) -> tuple[NDArray[np.float32], Box | None]:
    assert sample.box is not None
    grey = to_grey(read_image(sample.image))
    height, width = grey.shape
    right, down = round(SHARE * width) * corner[0], round(SHARE * height) * corner[1]
    return shifted_image(grey, right, down), shifted_box(sample.box, right, down, (height, width))


def shifted_precision(run: Run, manifest: Path, split: str = "test") -> float | None:
    """Lesion precision of a run on one of the manifests of `write_shifted`; None without prototypes."""
    if run.model.prototypes is None:
        return None
    chosen = evaluated_split(run, manifest, split)
    labels = class_numbers(run, chosen)
    places = run_pass(run, chosen, labels).localisation
    levels = run.model.prototypes.levels.cpu().numpy()
    weights = resample_weights(patients(chosen.samples), 1, 0)
    found = summarise(places, labels, levels, run.config.data.classes, weights)
    return found.activation_precision.lesion.mean
