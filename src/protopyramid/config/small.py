"""Settings that make any preset small enough for a laptop's processor, as overrides.

The demo and the tests train real presets with these on top, so that there is no second, small
copy of a preset that could drift from the first.

Example:
    >>> from protopyramid.config import load_config
    >>> load_config("fpn-iaia-bl", SMALL).data.image_size
    64
"""

from typing import Any

SMALL: dict[str, Any] = {
    "data.image_size": 64,
    "data.negatives.count": 0,
    "model.backbone.width": 0.125,
    "model.backbone.batch_norm": True,
    "model.neck.dim": 32,
    "train.batch_size": 16,
    "train.scale": 0.2,
}
