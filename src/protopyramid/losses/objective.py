"""The objective: cross entropy plus the weighted losses on prototypes, term by term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protopyramid.errors import UserError
from protopyramid.losses.cluster import cluster, separation
from protopyramid.losses.context import context
from protopyramid.losses.contrast import MARGIN, contrast
from protopyramid.losses.extent import Limit, extent
from protopyramid.losses.fine import MaskStencils, fine_annotation, fine_grouped
from protopyramid.losses.orthogonality import orthogonality
from protopyramid.model.network import Evidence
from protopyramid.model.prototypes import PrototypeLayer

TERMS = (
    "cross_entropy",
    "cluster",
    "separation",
    "orthogonality",
    "fine",
    "contrast",
    "context",
    "extent",
)


class Losses(NamedTuple):
    """The weighted sum, and every term unweighted for the log; all scalars."""

    total: Tensor
    terms: dict[str, Tensor]


@dataclass(frozen=True)
class FineOptions:
    """Which fine-annotation loss: see `fine_annotation` ("class-pair") and `fine_grouped`.

    `reduce`: over the annotated images of a batch.
    """

    kind: Literal["class-pair", "grouped"] = "class-pair"
    combine: Literal["paper", "disjoint"] = "paper"
    per_pixel: bool = False
    share: bool = False
    reduce: Literal["mean", "sum"] = "mean"


@dataclass(frozen=True)
class LossOptions:
    """The choices within the terms: see the functions of the same names."""

    label_smoothing: float = 0.0
    scope: Literal["level", "all"] = "level"
    cluster_over: Literal["max", "mean"] = "max"
    act_on: Literal["closeness", "score"] = "closeness"
    group: Literal["class-level", "class"] = "class-level"
    contrast_margin: float = MARGIN
    context_share: float = 0.25
    extent_shares: Mapping[int, float] = field(default_factory=dict)
    extent_around: Mapping[int, float] = field(default_factory=dict)
    extent_least: Mapping[int, float] = field(default_factory=dict)
    fine: FineOptions = field(default_factory=FineOptions)


class Surroundings(NamedTuple):
    """What was seen of windows of the images in other surroundings.

    maps {level: (B, m_level, h, w)}; inner {level: (B, h, w)} bool: the cells well inside the windows.
    """

    maps: dict[int, Tensor]
    inner: dict[int, Tensor]


class Batch(NamedTuple):
    """What the terms on prototypes are computed from.

    labels (B,); masks (B, H, W), 1 inside; annotated (B,) bool: which masks are annotations (D');
    surroundings: what the context loss compares with.
    """

    evidence: Evidence
    labels: Tensor
    masks: Tensor
    annotated: Tensor
    prototypes: PrototypeLayer
    surroundings: Surroundings | None = None


class Lesions(NamedTuple):
    """The annotated images of a batch that are not of the negative class: b of B.

    maps {level: (b, m_level, h, w)}; masks (b, H, W), 1 inside; labels (b,).
    """

    maps: dict[int, Tensor]
    masks: Tensor
    labels: Tensor


class Objective(nn.Module):
    """CE + l1 cluster + l2 separation + l3 orthogonality + l4 fine (equation 4),
    + contrast, context and extent (ours)."""

    inside: Tensor
    outside: Tensor

    def __init__(
        self,
        weights: Mapping[str, float],
        inside: Tensor,
        outside: Tensor,
        negative: int | None = None,
        options: LossOptions = LossOptions(),  # noqa: B008 (immutable)
        processes: int = 1,
    ) -> None:
        """`weights`: one for each of TERMS; `negative`: the number of the negative class; `processes`:
        how many share a batch.

        inside, outside (C, C): the penalties of the fine loss, by class of the sample and of the prototype.
        """
        super().__init__()
        if set(weights) != set(TERMS):
            raise UserError(f"expected a weight for each of {TERMS}, got {tuple(weights)}")
        self.weights = {term: float(weights[term]) for term in TERMS}
        self.negative, self.options, self.processes = negative, options, processes
        self.register_buffer("inside", inside)
        self.register_buffer("outside", outside)

    def forward(
        self,
        evidence: Evidence,
        labels: Tensor,
        masks: Tensor,
        annotated: Tensor,
        prototypes: PrototypeLayer | None,
        overrides: Mapping[str, float] | None = None,
        surroundings: Surroundings | None = None,
    ) -> Losses:
        """Losses of a batch, with the weights of `overrides` in place of the objective's own.

        labels (B,); masks (B, H, W), 1 inside; annotated (B,) bool: which masks are annotations (D');
        `surroundings`: needed where the context loss has a weight. A term of weight 0 is not computed.
        """
        weights = self.weights_with(overrides)
        smoothing = self.options.label_smoothing
        terms = {
            "cross_entropy": F.cross_entropy(evidence.logits, labels, label_smoothing=smoothing)
        }
        if prototypes is not None:
            batch = Batch(evidence, labels, masks, annotated, prototypes, surroundings)
            terms |= {name: term(batch) for name, term in self._on_prototypes() if weights[name]}
        weighted = [weights[name] * value for name, value in terms.items()]
        return Losses(torch.stack(weighted).sum(), terms)

    def weights_with(self, overrides: Mapping[str, float] | None) -> dict[str, float]:
        """The weight of each term, with those of a phase in place of the objective's own."""
        return {**self.weights, **(overrides or {})}

    def _on_prototypes(self) -> tuple[tuple[str, Callable[[Batch], Tensor]], ...]:
        """The terms that need prototypes, in the order of their sum."""
        return (
            ("cluster", self._cluster),
            ("separation", self._separation),
            ("orthogonality", self._orthogonality),
            ("fine", self._fine),
            ("contrast", self._contrast),
            ("context", self._context),
            ("extent", self._extent),
        )

    def _cluster(self, batch: Batch) -> Tensor:
        near, layer = self._near(batch), batch.prototypes
        scope, over = self.options.scope, self.options.cluster_over
        return cluster(near, batch.labels, layer.classes, layer.levels, scope, over)

    def _separation(self, batch: Batch) -> Tensor:
        near, layer = self._near(batch), batch.prototypes
        scope = self.options.scope
        return separation(near, batch.labels, layer.classes, layer.levels, scope)

    def _near(self, batch: Batch) -> Tensor:
        """What cluster and separation act on, (B, m)."""
        evidence = batch.evidence
        return evidence.scores if self.options.act_on == "score" else evidence.closeness

    def _orthogonality(self, batch: Batch) -> Tensor:
        layer = batch.prototypes
        return orthogonality(layer.vectors, layer.classes, layer.levels, self.options.group)

    def _fine(self, batch: Batch) -> Tensor:
        """The fine loss over the lesions, summed over levels."""
        lesions = self._lesions(batch)
        count = len(lesions.labels)
        if not count:
            return _zero(batch)
        mean = self._mean_fine(lesions, batch.prototypes)
        # Gradients are averaged over processes, and each has its share of the images.
        return mean * (count * self.processes) if self.options.fine.reduce == "sum" else mean

    def _mean_fine(self, lesions: Lesions, layer: PrototypeLayer) -> Tensor:
        maps, masks, labels = lesions
        options = self.options.fine
        if options.kind == "grouped":
            return fine_grouped(maps, masks, labels, layer.classes, options.per_pixel)
        inside = self.inside[labels][:, layer.classes]
        outside = self.outside[labels][:, layer.classes]
        shared = MaskStencils(masks)
        by_level = [
            fine_annotation(
                maps[level],
                shared,
                inside[:, rows],
                outside[:, rows],
                options.combine,
                options.per_pixel,
                options.share,
            )
            for level, rows in layer.slices.items()
        ]
        return torch.stack(by_level).sum()

    def _contrast(self, batch: Batch) -> Tensor:
        """The contrast loss over the lesions, averaged over levels."""
        lesions, layer = self._lesions(batch), batch.prototypes
        if not len(lesions.labels):
            return _zero(batch)
        own = lesions.labels[:, None] == layer.classes[None, :]
        by_level = [
            contrast(
                lesions.maps[level],
                lesions.masks,
                own[:, rows],
                layer.pooled_patches(level, lesions.maps[level]),
                self.options.contrast_margin,
            )
            for level, rows in layer.slices.items()
        ]
        return torch.stack(by_level).mean()

    def _context(self, batch: Batch) -> Tensor:
        """The context loss, averaged over levels."""
        other, layer = batch.surroundings, batch.prototypes
        if other is None:
            raise ValueError("the context loss needs what was seen in other surroundings, got None")
        own = batch.labels[:, None] == layer.classes[None, :]
        by_level = [
            context(
                maps,
                other.maps[level],
                own[:, rows],
                other.inner[level],
                layer.pooled_patches(level, maps),
            )
            for level, rows in layer.slices.items()
            for maps in (batch.evidence.maps[level],)
        ]
        return torch.stack(by_level).mean()

    def _extent(self, batch: Batch) -> Tensor:
        """The extent loss, averaged over the limits of all levels."""
        layer, maps = batch.prototypes, batch.evidence.maps
        own = batch.labels[:, None] == layer.classes[None, :]
        options = self.options
        limits: tuple[tuple[Limit, Mapping[int, float]], ...] = (
            ("most", options.extent_shares),
            ("around", options.extent_around),
            ("least", options.extent_least),
        )
        terms = [
            extent(maps[level], own[:, rows], shares[level], limit)
            for limit, shares in limits
            for level, rows in layer.slices.items()
            if level in shares
        ]
        return torch.stack(terms).mean() if terms else _zero(batch)

    def _lesions(self, batch: Batch) -> Lesions:
        """D' without the negative class, whose penalties are zero."""
        chosen = batch.annotated
        if self.negative is not None:
            chosen = chosen & (batch.labels != self.negative)
        rows = chosen.nonzero().squeeze(1)
        maps = {level: by_level[rows] for level, by_level in batch.evidence.maps.items()}
        return Lesions(maps, batch.masks[rows], batch.labels[rows])


def _zero(batch: Batch) -> Tensor:
    """Zero, differentiable as a term must be."""
    return batch.evidence.closeness.sum() * 0.0
