"""The losses, one per file, each a pure function of tensors, and the objective that sums them."""

from protopyramid.losses.build import build_objective
from protopyramid.losses.cluster import cluster, separation
from protopyramid.losses.context import context
from protopyramid.losses.contrast import contrast
from protopyramid.losses.extent import extent
from protopyramid.losses.fine import fine_annotation, fine_grouped, fine_tables
from protopyramid.losses.l1 import l1
from protopyramid.losses.objective import Losses, Objective
from protopyramid.losses.orthogonality import orthogonality

__all__ = [
    "Losses",
    "Objective",
    "build_objective",
    "cluster",
    "context",
    "contrast",
    "extent",
    "fine_annotation",
    "fine_grouped",
    "fine_tables",
    "l1",
    "orthogonality",
    "separation",
]
