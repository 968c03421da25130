"""The check of the middle: lesions moved away from it.

Crops are cut around their lesions, so a prototype that has learned to look at the middle has a high
lesion precision too. Here every image is moved by a quarter of its side towards a corner, and its box
along with it; what comes free is a mirror image. A prototype that looks at the lesion follows it. What
one that stays behind would score is the precision of the images as they were against the moved boxes.
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
from protopyramid.metrics import classification as metrics
from protopyramid.metrics.localisation import summarise
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.studies.occlusion_control import grey_png

MOVED, STAYED = "moved.csv", "stayed.csv"
SHARE = 0.25  # of the side
CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))  # x, y; the images take turns


def moved_image(image: NDArray[np.float32], right: int, down: int) -> NDArray[np.float32]:
    """An image (H, W) moved by some pixels; what comes free mirrors what lies beside it.

    >>> moved_image(np.array([[1.0, 2.0, 3.0]], dtype=np.float32), 1, 0).tolist()
    [[1.0, 1.0, 2.0]]
    """
    height, width = image.shape
    padded = np.pad(image, ((abs(down), abs(down)), (abs(right), abs(right))), mode="symmetric")
    top, left = abs(down) - down, abs(right) - right
    return padded[top : top + height, left : left + width]


def moved_box(box: Box, right: int, down: int, size: tuple[int, int]) -> Box | None:
    """A box moved likewise, as far as it stays in an image of size (height, width)."""
    x0, y0, x1, y1 = box
    return clip_box((x0 + right, y0 + down, x1 + right, y1 + down), *size)


def write_moved(manifest: Path, folder: Path, split: str = "test") -> tuple[Path, Path]:
    """The images of a split that have a box, moved, and two manifests with the moved boxes.

    The first manifest is of the moved images, the second of the images as they are. A lesion so near
    to an edge that it would leave its image is left out.
    """
    targets = (folder / MOVED, folder / STAYED)
    if all(target.is_file() for target in targets):
        return targets
    table = read_manifest(manifest)
    rows = [sample for sample in table.split(split) if sample.box]
    if not rows:
        raise UserError(f"{manifest}: no image of split {split} has a box; set moved = false")
    out = RunFolder(folder)
    moved, stayed = [], []
    for number, sample in enumerate(rows):
        name = f"images/{number:05d}.png"
        picture, box = _moved(sample, CORNERS[number % len(CORNERS)])
        if box is None:
            continue
        out.write_bytes(name, grey_png(picture))
        moved.append(replace(sample, image=folder / name, mask=None, box=box))
        stayed.append(replace(sample, mask=None, box=box))
    for target, samples in zip(targets, (moved, stayed), strict=True):
        chosen = replace(table, samples=tuple(samples))
        out.write_text(target.name, manifest_text(chosen, folder))
    return targets


def _moved(sample: Sample, corner: tuple[int, int]) -> tuple[NDArray[np.float32], Box | None]:
    assert sample.box is not None
    grey = to_grey(read_image(sample.image))
    height, width = grey.shape
    right, down = round(SHARE * width) * corner[0], round(SHARE * height) * corner[1]
    return moved_image(grey, right, down), moved_box(sample.box, right, down, (height, width))


def moved_precision(run: Run, manifest: Path, split: str = "test") -> float | None:
    """Lesion precision of a run on one of the manifests of `write_moved`; None without prototypes."""
    if run.model.prototypes is None:
        return None
    chosen = evaluated_split(run, manifest, split)
    labels = class_numbers(run, chosen)
    places = run_pass(run, chosen, labels).localisation
    levels = run.model.prototypes.levels.cpu().numpy()
    weights = metrics.resample_weights(patients(chosen.samples), 1, 0)
    found = summarise(places, labels, levels, run.config.data.classes, weights)
    mean: float | None = found["activation_precision"]["lesion"]["mean"]
    return mean
