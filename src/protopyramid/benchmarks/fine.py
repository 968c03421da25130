"""Rows on the fine-annotation loss: stencils against upsampling, in time, memory and value."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protopyramid.benchmarks.memory import Peaks, peaks_in_child, peaks_of
from protopyramid.benchmarks.references import pixel_weights, upsampled_fine_loss
from protopyramid.benchmarks.row import Row, at_least
from protopyramid.benchmarks.settings import Settings, fresh_model, prototypes_of, round_masks
from protopyramid.benchmarks.timing import Pair, in_turns
from protopyramid.config.schema import Config
from protopyramid.losses.build import build_objective
from protopyramid.losses.fine import MaskStencils, fine_annotation

FINE_TARGET = 10.0  # ours: times less than upsampling, in time and memory
LARGEST_DIFFERENCE = 1e-5  # ours: relative, of loss and gradients in float32
BYTES = 1e6  # of a megabyte


def fine_rows(settings: Settings) -> Iterator[Row]:
    """The fine loss, forward and backward, against upsampling: time, memory, equality."""
    problem = FineProblem.of(settings.config(), settings.fine_batch)
    pair = in_turns(problem.ours, problem.upsampled, settings.repetitions)
    name = (
        f"fine loss, m = {problem.prototypes}, {len(problem.maps)} levels, {problem.images} images"
    )
    limit = "upsample, multiply, norm"
    yield at_least(f"{name}: time", limit, pair, FINE_TARGET)
    yield from _fine_memory(problem, name, limit, settings.children)
    error = problem.difference()
    yield Row(
        f"{name}: difference",
        "upsampling, gradients too",
        error,
        error,
        error,
        LARGEST_DIFFERENCE,
        at_least=False,
        ours=error,
        reference=0.0,
        unit="",
        figure="relative",
    )


def _fine_memory(problem: FineProblem, name: str, limit: str, children: int) -> Iterator[Row]:
    """Peak memory of both sides, in turns, each measurement in a fresh process."""
    size = problem.masks.shape[-1], problem.images
    ours, theirs = [], []
    for _ in range(children):
        ours.append(peaks_in_child(f"{__name__}:fine_peaks", *size))
        theirs.append(peaks_in_child(f"{__name__}:upsampled_peaks", *size))
    python = [statistics.median(peak.python for peak in side) / 1000 for side in (ours, theirs)]
    note = "Python's own heap, by tracemalloc: {:.3g} kB against {:.3g} kB".format(*python)
    pair = Pair(_megabytes(ours, "tensors"), _megabytes(theirs, "tensors"))
    yield at_least(f"{name}: peak of tensors", limit, pair, FINE_TARGET, unit="MB", note=note)
    pair = Pair(_megabytes(ours, "resident"), _megabytes(theirs, "resident"))
    if pair.ours:
        yield at_least(f"{name}: peak of resident memory", limit, pair, FINE_TARGET, unit="MB")


def _megabytes(peaks: Sequence[Peaks], kind: str) -> tuple[float, ...]:
    found = (getattr(peak, kind) for peak in peaks)
    return tuple(size / BYTES for size in found if size is not None)


@dataclass(frozen=True)
class FineProblem:
    """Similarity maps, masks and class-pair weights of the default prototypes, for the fine loss."""

    maps: dict[int, Tensor]
    masks: Tensor
    inside: Tensor
    outside: Tensor

    @classmethod
    def of(cls, config: Config, count: int) -> FineProblem:
        """Random maps of `count` lesions, for a configuration whose levels all have the same classes."""
        torch.manual_seed(0)
        model = fresh_model(config)
        prototypes, objective = prototypes_of(model), build_objective(config)
        size = config.data.image_size
        rows = next(iter(prototypes.slices.values()))
        maps = {}
        for level in prototypes.slices:
            side = size // model.backbone.strides[level]
            shape = (count, rows.stop - rows.start, side, side)
            maps[level] = torch.rand(shape).mul_(2.0).sub_(1.0).requires_grad_()
        lesions = [n for n in range(len(config.data.classes)) if n != objective.negative]
        labels = torch.tensor(lesions)[torch.arange(count) % len(lesions)]
        classes = prototypes.classes[rows]
        pairs = (table[labels][:, classes] for table in (objective.inside, objective.outside))
        return cls(maps, round_masks(count, size), *pairs)

    @property
    def images(self) -> int:
        """Lesions in the batch."""
        return len(self.masks)

    @property
    def prototypes(self) -> int:
        """m, over all levels."""
        return sum(maps.shape[1] for maps in self.maps.values())

    def ours(self) -> tuple[Tensor, ...]:
        """Loss and gradients by stencils."""
        shared = MaskStencils(self.masks)
        parts = [
            fine_annotation(maps, shared, self.inside, self.outside) for maps in self.maps.values()
        ]
        return self._with_gradients(torch.stack(parts).sum())

    def upsampled(self) -> tuple[Tensor, ...]:
        """Loss and gradients by upsampling; the weights of pixels serve all levels."""
        weights = pixel_weights(self.masks, self.inside, self.outside)
        parts = [upsampled_fine_loss(maps, weights) for maps in self.maps.values()]
        return self._with_gradients(torch.stack(parts).sum())

    def difference(self) -> float:
        """Largest difference of loss and gradients, each relative to its largest value."""
        pairs = zip(self.ours(), self.upsampled(), strict=True)
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)

    def _with_gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        return (loss.detach(), *torch.autograd.grad(loss, list(self.maps.values())))


def fine_peaks(size: int, count: int) -> Peaks:
    """Peak memory of our fine loss; called in a child process."""
    return _fine_peaks(size, count, "ours")


def upsampled_peaks(size: int, count: int) -> Peaks:
    """Peak memory of the upsampled fine loss; called in a child process."""
    return _fine_peaks(size, count, "upsampled")


def _fine_peaks(size: int, count: int, side: str) -> Peaks:
    config = Settings().config(**{"data.image_size": size, "model.backbone.width": 0.125})
    getattr(FineProblem.of(config, 1), side)()  # libraries allocate their buffers now
    return peaks_of(getattr(FineProblem.of(config, count), side))
