"""Whether an image is like those that the model knows.

It is looked at in two ways. What the model says of it is one vector: the score of every prototype and
its closeness (top-k mean similarity, as the losses see it); of a model without prototypes, the pooled
channels. How it looks is another: how bright, how rough and how coloured it is, which some models do
not see. On validation images each has a mean and a covariance. An image is unlike the training data
when one of its two Mahalanobis distances from the mean is greater than that of all but 2.5 % of
validation images, each measured from the images of other patients: about 5 % of ordinary images are
flagged. So an image far from every prototype is flagged, and also one near to some which never go
together.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import split_samples, training_manifest
from protopyramid.runs.run import Run

Array = NDArray[np.float64]

FILE = layout.THRESHOLDS
FALSE_FLAGS = 0.05  # share of ordinary images flagged, half of them for each of the two reasons
PARTS = 5  # of the validation patients; each is measured from the others
MOST_NUMBERS = 512  # of an image that are looked at; the file holds their square
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)  # of the brightness
LEAST_SPREAD = 1e-4  # of a number, as a share of its mean: rounding is not a difference


class Numbers(NamedTuple):
    """What images are judged by: what the model says (B, p), and how they look (B, q)."""

    model: Tensor
    image: Tensor


def numbers_of(images: Tensor, scores: Tensor, closeness: Tensor) -> Numbers:
    """The numbers of images (B, C, S, S) in [0, 1], from their scores (B, m) and closeness (B, m or 0).

    Of more than 512 numbers of the model, as many are taken, evenly spaced.
    """
    said = torch.cat([scores, closeness], 1)
    if said.shape[1] > MOST_NUMBERS:
        said = said[:, torch.linspace(0, said.shape[1] - 1, MOST_NUMBERS).long()]
    return Numbers(said.cpu(), looks(images.cpu()))


def looks(images: Tensor) -> Tensor:
    """How bright, rough and coloured images are. (B, C, S, S) in [0, 1] -> (B, q).

    Brightness: mean, standard deviation and quantiles. Roughness: mean difference of neighbours, of the
    image and of one a quarter as wide. Colour: mean difference of the channels.
    """
    grey = images.mean(1)
    flat = grey.flatten(1)
    small = F.avg_pool2d(grey[:, None], 4)[:, 0]
    differences = [
        each.diff(dim=dim).abs().flatten(1).mean(1) for each in (grey, small) for dim in (1, 2)
    ]
    colour = (images - grey[:, None]).abs().flatten(1).mean(1)
    quantiles = flat.quantile(torch.tensor(QUANTILES, dtype=flat.dtype), dim=1)
    return torch.stack([flat.mean(1), flat.std(1), *quantiles, *differences, colour], 1)


@dataclass(frozen=True)
class Ordinary:
    """What ordinary images are like in one way, and how far from it is too far.

    mean and scale (p,), inverse (p, p): of the covariance of the scaled numbers.
    """

    limit: float
    mean: Array
    scale: Array
    inverse: Array

    def unlikeness(self, numbers: Tensor) -> Array:
        """Distance of images from ordinary ones, as a share of the limit. (B, p) -> (B,)."""
        return distances(_as_array(numbers), self.mean, self.scale, self.inverse) / self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain values, in seven digits: what single precision has."""
        return {
            "limit": self.limit,
            "mean": _short(self.mean),
            "scale": _short(self.scale),
            "inverse": [_short(row) for row in self.inverse],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Ordinary:
        """The inverse of to_json; ValueError where the sizes do not agree."""
        names = ("mean", "scale", "inverse")
        mean, scale, inverse = (np.asarray(content[name], dtype=np.float64) for name in names)
        if mean.ndim != 1 or scale.shape != mean.shape or inverse.shape != 2 * mean.shape:
            raise ValueError("sizes")
        return cls(float(content["limit"]), mean, scale, inverse)


@dataclass(frozen=True)
class Limits:
    """From where on an image is unlike the training data; `images`: how many on validation say so."""

    images: int
    model: Ordinary
    image: Ordinary
    false_flags: float = FALSE_FLAGS

    def unlikeness(self, numbers: Numbers) -> Array:
        """How unlike ordinary images each image is, the limit being 1. -> (B,)."""
        said, seen = self.model.unlikeness(numbers.model), self.image.unlikeness(numbers.image)
        return np.asarray(np.maximum(said, seen))

    def to_json(self) -> dict[str, Any]:
        """The content of thresholds.json."""
        parts = {"model": self.model.to_json(), "image": self.image.to_json()}
        return {"false_flags": self.false_flags, "images": self.images, **parts}


def fit_limits(numbers: Numbers, patients: Sequence[str]) -> Limits | None:
    """The limits from N validation images and their patients; None with fewer than two patients."""
    if len(set(patients)) < 2:
        return None
    part = _parts(patients)
    model, image = (_fit(_as_array(each), part) for each in numbers)
    return Limits(len(part), model, image)


def _fit(values: Array, part: NDArray[np.int64]) -> Ordinary:
    """Mean, covariance and limit of images (N, p); distances are measured from the other parts."""
    found = np.zeros(len(values))
    for number in range(part.max() + 1):
        here = part == number
        found[here] = distances(values[here], *ordinary(values[~here]))
    limit = float(np.quantile(found, 1 - FALSE_FLAGS / 2))
    return Ordinary(max(limit, 1e-9), *ordinary(values))


def _parts(patients: Sequence[str]) -> NDArray[np.int64]:
    """The part of each image; the images of a patient are in one part."""
    order = {name: number for number, name in enumerate(dict.fromkeys(patients))}
    return np.array([order[name] % PARTS for name in patients], dtype=np.int64)


def ordinary(values: Array) -> tuple[Array, Array, Array]:
    """Mean, scale and inverse covariance of the scaled numbers of images (N, p).

    The covariance is shrunk towards a multiple of the identity (Ledoit and Wolf 2004), so that it can
    be inverted also where images are fewer than numbers.
    """
    mean = values.mean(0)
    scale = np.maximum(values.std(0), LEAST_SPREAD * np.abs(mean))
    known = scale[scale > 0]
    scale[scale == 0] = np.median(known) if len(known) else 1.0  # always 0: as wide as the others
    covariance = shrunk_covariance((values - mean) / scale)
    return mean, scale, np.asarray(np.linalg.inv(covariance), dtype=np.float64)


def shrunk_covariance(centred: Array) -> Array:
    """The covariance that Ledoit and Wolf estimate from centred rows. (N, p) -> (p, p)."""
    n, p = centred.shape
    sample = centred.T @ centred / n
    target = np.eye(p) * (np.trace(sample) / p)
    spread = ((sample - target) ** 2).sum()
    noise = ((centred**2).sum(1) ** 2).sum() / n**2 - (sample**2).sum() / n
    share = min(max(noise / spread, 0.0), 1.0) if spread > 0 else 1.0
    # A little of the identity always: numbers of a few equal images have no covariance at all.
    return np.asarray((1 - share) * sample + share * target + 1e-6 * np.eye(p))


def distances(values: Array, mean: Array, scale: Array, inverse: Array) -> Array:
    """Mahalanobis distances of images (B, p) from the mean. -> (B,)."""
    away = (values - mean) / scale
    squares = ((away @ inverse) * away).sum(1)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def validation_limits(
    model: PrototypeNetwork,
    store: ImageStore,
    batch_size: int = 32,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Limits | None:
    """The limits of a model from the validation images of a store; None where they are too few."""
    batches = []
    progress(0, len(store.samples))
    for seen in evidence_batches(model, store, None, batch_size):
        evidence = seen.evidence
        batches.append(numbers_of(seen.loaded.images, evidence.scores, evidence.closeness))
        progress(seen.images[-1] + 1, len(store.samples))
    if not batches:
        return None
    patients = [sample.patient for sample in store.samples]
    return fit_limits(Numbers(*map(torch.cat, zip(*batches, strict=True))), patients)


# -- files ---------------------------------------------------------------------------------------
def write_limits(folder: RunFolder, limits: Limits | None) -> None:
    """Write thresholds.json; where there are no limits, say that no image will be flagged."""
    if limits is None:
        warnings.warn(
            f"{folder.path}: the validation images are of fewer than two patients, so that there is no "
            "limit from which an image is unlike the training data",
            stacklevel=2,
        )
        return
    folder.write_text(FILE, json.dumps(limits.to_json(), allow_nan=False) + "\n")


def write_threshold(
    run: Run, progress: Callable[[int, int], None] = lambda done, total: None
) -> None:
    """Write thresholds.json of a run from its validation images, where they still are."""
    manifest = training_manifest(run)
    if manifest is None:
        return
    samples = split_samples(read_manifest(manifest), "validation", run.provenance.splits)
    store = ImageStore(samples, run.config.data)
    size = run.config.train.eval_batch_size
    write_limits(run.folder, validation_limits(run.model, store, size, progress))


def read_limits(folder: RunFolder) -> Limits | None:
    """The limits of a run; None where it has none, or those of an earlier version (similarities)."""
    if not (folder / FILE).is_file():
        return None
    content = folder.read_json(FILE)
    if isinstance(content, dict) and "similarity" in content:
        return None
    try:
        model, image = (Ordinary.from_json(content[name]) for name in ("model", "image"))
        return Limits(int(content["images"]), model, image, float(content["false_flags"]))
    except (KeyError, TypeError, ValueError):
        raise _damaged(folder) from None


def limits_for(run: Run) -> Limits | None:
    """The limits of a run, which must be those of its model."""
    limits = read_limits(run.folder)
    inputs = run.model.head.weight.shape[1]
    expected = min(inputs * (1 if run.model.prototypes is None else 2), MOST_NUMBERS)
    if limits is not None and len(limits.model.mean) != expected:
        raise _damaged(run.folder)
    return limits


def _damaged(folder: RunFolder) -> UserError:
    return UserError(
        f"{folder / FILE}: does not fit the run; make it anew: "
        f"protopyramid evaluate {folder.path} --split validation"
    )


def _as_array(numbers: Tensor) -> Array:
    return numbers.detach().double().cpu().numpy()


def _short(values: Array) -> list[float]:
    return [float(f"{value:.7g}") for value in values]
