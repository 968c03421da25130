"""The objective: cross entropy and the weighted losses of a configuration, term by term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protopyramid.config.schema import Config
from protopyramid.losses.cluster import cluster, separation
from protopyramid.losses.contrast import contrast
from protopyramid.losses.fine import MaskStencils, fine_annotation, fine_grouped, fine_tables
from protopyramid.losses.orthogonality import orthogonality
from protopyramid.model.network import Evidence
from protopyramid.model.prototypes import PrototypeLayer

TERMS = ("cross_entropy", "cluster", "separation", "orthogonality", "fine", "contrast")


class Losses(NamedTuple):
    """The weighted sum, and every term unweighted for the log."""

    total: Tensor
    terms: dict[str, Tensor]


class Objective(nn.Module):
    """CE + l1 cluster + l2 separation + l3 orthogonality + l4 fine (equation 4)."""

    inside: Tensor
    outside: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config.loss
        names, negative = config.data.classes, config.data.negative_class
        self.negative = names.index(negative) if negative else -1
        fine = config.loss.fine
        inner, outer = fine_tables(fine.inside, fine.outside, names, negative, fine.transpose)
        self.register_buffer("inside", inner)
        self.register_buffer("outside", outer)

    def weights(self, overrides: Mapping[str, float] | None = None) -> dict[str, float]:
        """The weight of each term, with a step's own weights in place of the configuration's."""
        weights = {term: getattr(self.config, term) for term in TERMS if term != "fine"}
        return {**weights, "fine": self.config.fine.weight, **(overrides or {})}

    def forward(
        self,
        evidence: Evidence,
        labels: Tensor,
        masks: Tensor,
        annotated: Tensor,
        prototypes: PrototypeLayer | None,
        overrides: Mapping[str, float] | None = None,
    ) -> Losses:
        """Losses of a batch.

        labels (B,); masks (B, H, W), 1 inside; annotated (B,) bool: which masks are annotations (D').
        A term of weight 0 is not computed.
        """
        weights = self.weights(overrides)
        smoothing = self.config.label_smoothing
        terms = {
            "cross_entropy": F.cross_entropy(evidence.logits, labels, label_smoothing=smoothing)
        }
        if prototypes is not None:
            terms |= self._prototype_terms(evidence, labels, masks, annotated, prototypes, weights)
        weighted = [weights[name] * value for name, value in terms.items()]
        return Losses(torch.stack(weighted).sum(), terms)

    def _prototype_terms(
        self,
        evidence: Evidence,
        labels: Tensor,
        masks: Tensor,
        annotated: Tensor,
        prototypes: PrototypeLayer,
        weights: Mapping[str, float],
    ) -> dict[str, Tensor]:
        classes, levels, scope = prototypes.classes, prototypes.levels, self.config.scope
        terms = {}
        if weights["cluster"]:
            over = self.config.cluster_over
            terms["cluster"] = cluster(evidence.closeness, labels, classes, levels, scope, over)
        if weights["separation"]:
            terms["separation"] = separation(evidence.closeness, labels, classes, levels, scope)
        if weights["orthogonality"]:
            group = self.config.group
            terms["orthogonality"] = orthogonality(prototypes.vectors, classes, levels, group)
        if weights["fine"]:
            terms["fine"] = self._fine(evidence, labels, masks, annotated, prototypes)
        if weights["contrast"]:
            terms["contrast"] = self._contrast(evidence, labels, masks, annotated, prototypes)
        return terms

    def _contrast(
        self,
        evidence: Evidence,
        labels: Tensor,
        masks: Tensor,
        annotated: Tensor,
        prototypes: PrototypeLayer,
    ) -> Tensor:
        """The contrast loss over D' without the negative class, averaged over levels."""
        rows = self._lesions(labels, annotated)
        if not len(rows):
            return evidence.closeness.sum() * 0.0
        own = labels[rows][:, None] == prototypes.classes[None, :]
        parts = [
            contrast(
                maps[rows],
                masks[rows],
                own[:, prototypes.slices[level]],
                prototypes.pooled_patches(level, maps),
                self.config.contrast_margin,
            )
            for level, maps in evidence.maps.items()
        ]
        return torch.stack(parts).mean()

    def _lesions(self, labels: Tensor, annotated: Tensor) -> Tensor:
        """Rows of a batch that are annotated and not of the negative class."""
        return (annotated & (labels != self.negative)).nonzero().squeeze(1)

    def _fine(
        self,
        evidence: Evidence,
        labels: Tensor,
        masks: Tensor,
        annotated: Tensor,
        prototypes: PrototypeLayer,
    ) -> Tensor:
        """The fine loss over D' without the negative class, whose rows are zero."""
        rows = self._lesions(labels, annotated)
        if not len(rows):
            return evidence.closeness.sum() * 0.0
        fine, labels, masks = self.config.fine, labels[rows], masks[rows]
        maps = {level: by_level[rows] for level, by_level in evidence.maps.items()}
        if fine.kind == "grouped":
            return fine_grouped(maps, masks, labels, prototypes.classes, fine.per_pixel)
        inside = self.inside[labels][:, prototypes.classes]
        outside = self.outside[labels][:, prototypes.classes]
        shared = MaskStencils(masks)
        total = [
            fine_annotation(
                by_level,
                shared,
                inside[:, prototypes.slices[level]],
                outside[:, prototypes.slices[level]],
                fine.combine,
                fine.per_pixel,
                fine.share,
            )
            for level, by_level in maps.items()
        ]
        return torch.stack(total).sum()
