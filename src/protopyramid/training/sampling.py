"""Which images an epoch trains on, in which order: a function of the seed and the epoch alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.config.schema import DataConfig

Indices = NDArray[np.int64]
# Independent streams of random numbers.
NEGATIVES, ORDER, ANNOTATED = 1, 2, 3


@dataclass(frozen=True)
class Draw:
    """A batch: indices of images, and how often each had been drawn before in the epoch."""

    images: Indices
    repeats: Indices


def epoch_batches(
    labels: Indices,
    annotated: NDArray[np.bool_],
    data: DataConfig,
    batch_size: int,
    seed: int,
    epoch: int,
    sources: Indices | None = None,
) -> list[Draw]:
    """The batches of an epoch.

    labels (N,) class numbers, annotated (N,) bool, sources (N,) numbers of datasets (None: all of one).
    Batches differ in size by at most one, so that none
    is tiny. With `data.annotated_share`, annotated images are added to batches with too few of them.
    """
    pool = training_pool(labels, data, seed, epoch)
    groups = labels
    if data.balance == "source-class" and sources is not None:
        groups = labels + (labels.max(initial=0) + 1) * sources
    order = _order(
        groups[pool], data.balance != "none", np.random.default_rng((seed, epoch, ORDER))
    )
    drawn = pool[order]
    parts = np.array_split(drawn, max(1, -(-len(drawn) // batch_size)))
    parts = _add_annotated(parts, annotated, data, seed, epoch)
    return _with_repeats(parts)


def training_pool(labels: Indices, data: DataConfig, seed: int, epoch: int) -> Indices:
    """Indices of the images that an epoch may draw: all lesions, and a random subset of the negatives."""
    everything = np.arange(len(labels))
    wanted = data.negatives.count
    if not data.negative_class or not wanted:
        return everything
    negative = labels == data.classes.index(data.negative_class)
    if negative.sum() <= wanted:
        return everything
    epoch = 0 if data.negatives.resample == "once" else epoch
    chosen = np.random.default_rng((seed, epoch, NEGATIVES)).permutation(everything[negative])[
        :wanted
    ]
    return np.sort(np.concatenate([everything[~negative], chosen]))


def fit_pool(labels: Indices, data: DataConfig, seed: int) -> Indices:
    """Indices of the images that projection and head fit use: with negatives drawn once, only those."""
    if data.negatives.resample == "once":
        return training_pool(labels, data, seed, epoch=0)
    return np.arange(len(labels))


def _order(labels: Indices, balanced: bool, random: np.random.Generator) -> Indices:
    """A random order of positions; balanced: as many draws, divided equally among the classes.

    "Classes" are those of the labels that are given, also where they number pairs of source and class.
    """
    if not balanced:
        return random.permutation(len(labels))
    present = np.unique(labels)
    share = -(-len(labels) // len(present))
    drawn = []
    for number in present:
        members = np.flatnonzero(labels == number)
        rounds = -(-share // len(members))
        drawn.append(np.concatenate([random.permutation(members) for _ in range(rounds)])[:share])
    # Classes alternate, each in its own random order, so that every batch holds all of them.
    mixed = np.stack(drawn, axis=1)
    return random.permuted(mixed, axis=1).reshape(-1)


def _add_annotated(
    parts: list[Indices], annotated: NDArray[np.bool_], data: DataConfig, seed: int, epoch: int
) -> list[Indices]:
    """Add annotated images with a lesion to batches until they make up the wanted share."""
    pool = np.flatnonzero(annotated)
    if not data.annotated_share or not len(pool):
        return parts
    random = np.random.default_rng((seed, epoch, ANNOTATED))
    whole = []
    for part in parts:
        have = int(annotated[part].sum())
        # have + added >= share (len + added)
        lacking = data.annotated_share * len(part) - have
        limit = max(1e-9, 1.0 - data.annotated_share)
        added = min(len(part), int(np.ceil(lacking / limit))) if lacking > 0 else 0
        whole.append(np.concatenate([part, random.choice(pool, added)]))
    return whole


def _with_repeats(parts: list[Indices]) -> list[Draw]:
    seen: dict[int, int] = {}
    draws = []
    for part in parts:
        repeats = np.empty_like(part)
        for place, index in enumerate(part.tolist()):
            repeats[place] = seen.get(index, 0)
            seen[index] = int(repeats[place]) + 1
        draws.append(Draw(part, repeats))
    return draws
