"""The network and its parts: backbones, necks, similarity, pooling, prototypes, head."""

from protopyramid.model.build import build_model
from protopyramid.model.network import Evidence, PrototypeNetwork

__all__ = ["Evidence", "PrototypeNetwork", "build_model"]
