"""Out-of-distribution (OOD) detection: is an image unlike those that the model was trained on?

Two feature vectors describe an image. What the model says of it: the score of every prototype and its
closeness (top-k mean similarity, as the losses see it); without prototypes, the pooled channels. And how
it looks: brightness, roughness and colour, to which some models are blind. Each vector has a mean and a
covariance over validation images. An image is out of distribution when one of its two Mahalanobis
distances exceeds that of all but 2.5 % of validation images, each measured from the images of other
patients: about 5 % of in-distribution images are flagged. So an image far from every prototype is
flagged, and also one near to prototypes that never occur together.
"""

from __future__ import annotations

import hashlib
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

from protopyramid.config.schema import Config
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import split_samples, training_manifest
from protopyramid.runs.run import Run
from protopyramid.utils.opening import WEIGHTS, read_file

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]

FILE = layout.THRESHOLDS
FALSE_FLAGS = 0.05  # share of in-distribution images flagged, half for each of the two vectors
PARTS = 5  # of the validation patients; each part is measured from the others
MAX_FEATURES = 512  # of the model's features that are kept; the file holds their square
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)  # of the brightness
MIN_SPREAD = 1e-4  # of a feature, as a share of its mean: rounding is not a difference


class OodFeatures(NamedTuple):
    """The features of images: what the model says (B, p), and how they look (B, q)."""

    model: Tensor
    image: Tensor


def ood_features(images: Tensor, scores: Tensor, closeness: Tensor) -> OodFeatures:
    """The features of images (B, C, S, S) in [0, 1] with scores (B, m) and closeness (B, m or 0)."""
    return OodFeatures(model_features(scores, closeness), image_statistics(images.cpu()))


def model_features(scores: Tensor, closeness: Tensor) -> Tensor:
    """What the model says of images: scores (B, m) and closeness (B, m or 0) -> (B, p).

    Of more than 512 features, 512 are kept, evenly spaced.
    """
    said = torch.cat([scores.cpu(), closeness.cpu()], 1)
    if said.shape[1] > MAX_FEATURES:
        said = said[:, torch.linspace(0, said.shape[1] - 1, MAX_FEATURES).long()]
    return said


def concatenate(batches: Sequence[OodFeatures]) -> OodFeatures:
    """The features of several batches as one."""
    return OodFeatures(*map(torch.cat, zip(*batches, strict=True)))


def image_statistics(images: Tensor) -> Tensor:
    """How bright, rough and coloured images are. (B, C, S, S) in [0, 1] -> (B, q).

    Brightness: mean, standard deviation and quantiles. Roughness: mean difference of neighbours, in the
    image and at a quarter of its size. Colour: mean difference of the channels.
    """
    grey = images.mean(1)
    flat = grey.flatten(1)
    small = F.avg_pool2d(grey[:, None], 4)[:, 0]
    differences = [
        each.diff(dim=dim).abs().flatten(1).mean(1) for each in (grey, small) for dim in (1, 2)
    ]
    colour = (images - grey[:, None]).abs().flatten(1).mean(1)
    return torch.stack([flat.mean(1), flat.std(1), *_quantiles(flat), *differences, colour], 1)


def _quantiles(flat: Tensor) -> list[Tensor]:
    """The QUANTILES of each row (B, n) as B values each, as torch.quantile gives them.

    NumPy sorts thirty times as fast.
    """
    ordered = torch.from_numpy(np.sort(flat.numpy(), axis=1))
    ranks = torch.tensor(QUANTILES, dtype=flat.dtype) * (flat.shape[1] - 1)
    below, above = ranks.floor().long(), ranks.ceil().long()
    return list(torch.lerp(ordered[:, below], ordered[:, above], ranks - ranks.floor()).T)


@dataclass(frozen=True)
class Reference:
    """The distribution of one feature vector over validation images, and the distance that is too far.

    mean and scale (p,); inverse (p, p): of the covariance of the scaled features.
    """

    limit: float
    mean: Array
    scale: Array
    inverse: Array

    def relative_distance(self, features: Tensor) -> Array:
        """Mahalanobis distance of images as a share of the limit. (B, p) -> (B,)."""
        return mahalanobis(_as_array(features), self.mean, self.scale, self.inverse) / self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain values, with seven digits: those of single precision."""
        return {
            "limit": self.limit,
            "mean": _short(self.mean),
            "scale": _short(self.scale),
            "inverse": [_short(row) for row in self.inverse],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reference:
        """The inverse of to_json; ValueError where the sizes do not agree."""
        names = ("mean", "scale", "inverse")
        mean, scale, inverse = (np.asarray(content[name], dtype=np.float64) for name in names)
        if mean.ndim != 1 or scale.shape != mean.shape or inverse.shape != 2 * mean.shape:
            raise ValueError("sizes")
        return cls(float(content["limit"]), mean, scale, inverse)


@dataclass(frozen=True)
class Limits:
    """The limits beyond which an image is out of distribution; `images`: how many they were computed from.

    `digest`: of the model and settings that the limits hold for; None in files of earlier versions.
    """

    images: int
    model: Reference
    image: Reference
    false_flags: float = FALSE_FLAGS
    digest: str | None = None

    def relative_distance(self, features: OodFeatures) -> Array:
        """The greater of the two distances, as a share of its limit: above 1 is OOD. -> (B,)."""
        said = self.model.relative_distance(features.model)
        appearance = self.image.relative_distance(features.image)
        return np.asarray(np.maximum(said, appearance))

    def to_json(self) -> dict[str, Any]:
        """The content of thresholds.json."""
        parts = {"model": self.model.to_json(), "image": self.image.to_json()}
        head = {"false_flags": self.false_flags, "images": self.images}
        return {**head, **({} if self.digest is None else {"digest": self.digest}), **parts}


# -- fitting -------------------------------------------------------------------------------------
def fit_limits(features: OodFeatures, patients: Sequence[str]) -> Limits | None:
    """The limits from N validation images and their patients; None with fewer than two patients."""
    if len(set(patients)) < 2:
        return None
    part = _parts(patients)
    model, image = (_fit(_as_array(each), part) for each in features)
    return Limits(len(part), model, image)


def _fit(values: Array, part: NDArray[np.int64]) -> Reference:
    """Mean, covariance and limit of features (N, p); distances are measured from the other parts."""
    found = np.zeros(len(values))
    for number in range(part.max() + 1):
        here = part == number
        found[here] = mahalanobis(values[here], *fit_gaussian(values[~here]))
    limit = float(np.quantile(found, 1 - FALSE_FLAGS / 2))
    return Reference(max(limit, 1e-9), *fit_gaussian(values))


def _parts(patients: Sequence[str]) -> NDArray[np.int64]:
    """The part of each image; the images of a patient are in one part."""
    order = {name: number for number, name in enumerate(dict.fromkeys(patients))}
    return np.array([order[name] % PARTS for name in patients], dtype=np.int64)


def fit_gaussian(values: Array) -> tuple[Array, Array, Array]:
    """Mean, scale and inverse covariance of the scaled features (N, p).

    The covariance is shrunk towards a multiple of the identity (Ledoit and Wolf 2004), so that it can
    be inverted even where there are fewer images than features.
    """
    mean = values.mean(0)
    scale = np.maximum(values.std(0), MIN_SPREAD * np.abs(mean))
    known = scale[scale > 0]
    # A feature that is always 0 is taken to be as wide as the others.
    scale[scale == 0] = np.median(known) if len(known) else 1.0
    covariance = shrunk_covariance((values - mean) / scale)
    return mean, scale, np.asarray(np.linalg.inv(covariance), dtype=np.float64)


def shrunk_covariance(centred: Array) -> Array:
    """The covariance of centred rows by Ledoit and Wolf (2004). (N, p) -> (p, p).

    Equals `sklearn.covariance.ledoit_wolf(centred, assume_centered=True)[0]` plus 1e-6 on the diagonal;
    scikit-learn itself would be a heavy dependency for six lines.
    """
    n, p = centred.shape
    sample = centred.T @ centred / n
    target = np.eye(p) * (np.trace(sample) / p)
    spread = ((sample - target) ** 2).sum()
    noise = ((centred**2).sum(1) ** 2).sum() / n**2 - (sample**2).sum() / n
    share = min(max(noise / spread, 0.0), 1.0) if spread > 0 else 1.0
    # Always a little of the identity: the features of a few equal images have no covariance at all.
    return np.asarray((1 - share) * sample + share * target + 1e-6 * np.eye(p))


def mahalanobis(values: Array, mean: Array, scale: Array, inverse: Array) -> Array:
    """Mahalanobis distances of features (B, p) from the mean. -> (B,)."""
    away = (values - mean) / scale
    squares = ((away @ inverse) * away).sum(1)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def validation_limits(
    model: PrototypeNetwork,
    store: ImageStore,
    batch_size: int = 32,
    progress: Progress = lambda done, total: None,
) -> Limits | None:
    """The limits of a model from the validation images of a store; None where there are too few.

    `progress(done, total)` is called at the start and after each batch.
    """
    batches = []
    progress(0, len(store.samples))
    for batch in evidence_batches(model, store, None, batch_size):
        evidence = batch.evidence
        batches.append(ood_features(batch.loaded.images, evidence.scores, evidence.closeness))
        progress(batch.images[-1] + 1, len(store.samples))
    if not batches:
        return None
    return fit_limits(concatenate(batches), [sample.patient for sample in store.samples])


# -- files ---------------------------------------------------------------------------------------
def write_limits(folder: RunFolder, limits: Limits | None, digest: str) -> None:
    """Write thresholds.json; without limits, warn that no image will be flagged.

    `digest`: what the limits hold for, by `limits_digest` or `digest_of`.
    """
    if limits is None:
        warnings.warn(
            f"{folder.path.name}: the validation images come from fewer than two patients, so there are no "
            "out-of-distribution limits and no image will be flagged as unlike the training data",
            stacklevel=2,
        )
        return
    content = Limits(limits.images, limits.model, limits.image, limits.false_flags, digest)
    folder.write_text(FILE, json.dumps(content.to_json(), allow_nan=False) + "\n")


def write_threshold(run: Run, progress: Progress = lambda done, total: None) -> None:
    """Write thresholds.json of a run from its validation images, where they still exist."""
    manifest = training_manifest(run)
    if manifest is None:
        return
    samples = split_samples(read_manifest(manifest), "validation", run.provenance.splits)
    store = ImageStore(samples, run.config.data)
    size = run.config.train.eval_batch_size
    limits = validation_limits(run.model, store, size, progress)
    write_limits(run.folder, limits, limits_digest(run))


def read_limits(folder: RunFolder) -> Limits | None:
    """The limits of a run; None where it has none, or those of an earlier version (similarities)."""
    if not (folder / FILE).is_file():
        return None
    content = folder.read_json(FILE)
    if isinstance(content, dict) and "similarity" in content:
        return None
    try:
        model, image = (Reference.from_json(content[name]) for name in ("model", "image"))
        digest = content.get("digest")
        limits = Limits(int(content["images"]), model, image, float(content["false_flags"]), digest)
    except (KeyError, TypeError, ValueError):
        raise _mismatch(folder, "damaged") from None
    return limits


def limits_for(run: Run) -> Limits | None:
    """The limits of a run, read once; UserError where they were computed for another model or settings."""
    if not (run.folder / FILE).is_file():
        return None
    stamp = (file_stamp(run, FILE), file_stamp(run, layout.MODEL), _settings(run.config))
    known = run.cache.get(FILE)
    if known is None or known[0] != stamp:
        known = (stamp, _checked_limits(run))
        run.cache[FILE] = known
    limits: Limits | None = known[1]
    return limits


def limits_are_current(run: Run) -> bool:
    """Whether a run has limits that were computed for its model and settings."""
    try:
        return limits_for(run) is not None
    except UserError:
        return False


def _checked_limits(run: Run) -> Limits | None:
    limits = read_limits(run.folder)
    if limits is None:
        return None
    inputs = run.model.score_count
    expected = min(inputs * (1 if run.model.prototypes is None else 2), MAX_FEATURES)
    if len(limits.model.mean) != expected or limits.digest not in (None, limits_digest(run)):
        raise _mismatch(
            run.folder, "computed for another model or other settings (such as model.tta)"
        )
    return limits


def limits_digest(run: Run) -> str:
    """Hash of what the limits of a run hold for: the saved model and the settings that they see."""
    stamp = (file_stamp(run, layout.MODEL), _settings(run.config))
    known = run.cache.get("digest")
    if known is None or known[0] != stamp:
        known = (stamp, digest_of(read_file(run.folder / layout.MODEL, WEIGHTS), run.config))
        run.cache["digest"] = known
    digest: str = known[1]
    return digest


def digest_of(model: bytes, config: Config) -> str:
    """Hash of a model.safetensors' bytes and of the settings that out-of-distribution limits depend on."""
    return hashlib.sha256(model + _settings(config).encode()).hexdigest()


def _settings(config: Config) -> str:
    """Test-time augmentation, pooling and input preparation.

    Defaults are left out of the nested tables, so that a new setting does not invalidate old limits.
    """
    model, data = config.model, config.data
    settings = {
        "tta": model.tta,
        "similarity": model.similarity.model_dump(mode="json", exclude_defaults=True),
        "pooling": model.pooling.model_dump(mode="json", exclude_defaults=True),
        "image_size": data.image_size,
        "fit": data.fit,
        "crop": data.crop,
        "region": data.region.model_dump(mode="json", exclude_defaults=True),
        "mean": data.mean,
        "std": data.std,
        "dicom": data.dicom.model_dump(mode="json", exclude_defaults=True),
    }
    return json.dumps(settings, sort_keys=True)


def file_stamp(run: Run, name: str) -> tuple[int, int] | None:
    """When a file of the run folder was written, and its size; None where there is none."""
    try:
        facts = (run.folder / name).stat()
    except FileNotFoundError:
        return None
    return facts.st_mtime_ns, facts.st_size


def _mismatch(folder: RunFolder, what: str) -> UserError:
    return UserError(
        f"{folder / FILE}: {what}; compute it again with: "
        f"protopyramid evaluate {folder.path} --split validation"
    )


def _as_array(features: Tensor) -> Array:
    return features.detach().double().cpu().numpy()


def _short(values: Array) -> list[float]:
    return [float(f"{value:.7g}") for value in values]
