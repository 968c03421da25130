"""The network and its parts: backbones, necks, similarity, pooling, prototypes, head."""

from protopyramid.model.network import Evidence, PrototypeNetwork, build_model

__all__ = ["Evidence", "PrototypeNetwork", "build_model"]
