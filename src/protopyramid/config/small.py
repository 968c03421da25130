"""Settings that make any preset small enough for a laptop's processor, as overrides.

The demo and the tests train real presets with these on top, so that there is no second, small
copy of a preset that could drift from the first.

Example:
    >>> from protopyramid.config import load_config
    >>> load_config("fpn-iaia-bl", SMALL).data.image_size
    112
"""

from typing import Any

# An eighth of VGG-16's channels at half its input size: about 200 times fewer multiplications. Made for
# training from nothing, which is what batch norm is for. Convolutions see the edge again beyond the edge:
# with zeros there, borders are the easiest thing to be alike, and prototypes settle on them.
SMALL: dict[str, Any] = {
    "data.image_size": 112,
    "data.negatives.count": 0,
    "model.backbone.width": 0.125,
    "model.backbone.batch_norm": True,
    "model.backbone.padding": "replicate",
    "model.neck.dim": 32,
    "train.batch_size": 16,
    "train.eval_batch_size": 64,
    "train.threads": 1,  # so small a network is no faster on two
    # Phantoms have no preferred direction; turning by right angles keeps them sharp.
    "augmentation.rotation": 0.0,
    "augmentation.zoom": [1.0, 1.0],
}

_JOINT = ["backbone", "neck", "prototypes", "head"]
_PROJECT_AND_FIT: list[dict[str, Any]] = [{"step": "project"}, {"step": "fit-head"}]

# The demo's first training: a short IAIA-BL from nothing, whose backbone the second one starts from.
# From nothing there is no use in warming up on a frozen backbone: all parts learn at once.
DEMO_FIRST: dict[str, Any] = {
    **SMALL,
    "model.neck.dim": 64,
    "model.pooling.k": 3,
    "train.validate_every": 4,
    "train.schedule": [
        {
            "step": "train",
            "name": "joint",
            "learns": _JOINT,
            "epochs": 8,
            "learning_rate": 4e-3,
            "weight_decay": 0.01,
            "warmup": 1,
            "decay": "cosine",
            "decay_factor": 0.02,
        },
        *_PROJECT_AND_FIT,
    ],
}

# The demo's second training: FPN-IAIA-BL on that backbone, stages A, B and C of the paper. What is ours:
# top 5 % of the patches instead of 9 (9 of 49 would be half a lesion), a score scale of 10, a head that
# starts with no say against other classes (evidence for, not elimination), batch norm on the pyramid, and
# the contrast loss, which makes prototypes prefer the annotation to the rest.
DEMO_SECOND: dict[str, Any] = {
    **SMALL,
    "model.neck.batch_norm": True,
    "model.neck.padding": "replicate",
    "model.pooling.k": 0.05,
    "model.head.scale": 10.0,
    "model.head.other": 0.0,
    "loss.cluster": 0.2,
    "loss.separation": 0.3,
    "loss.contrast": 10.0,
    "loss.fine.per_pixel": True,
    "loss.fine.weight": 0.02,
    "projection.inside_annotation": True,
    "train.validate_every": 5,
    "train.schedule": [
        {
            "step": "train",
            "name": "A",
            "learns": ["neck", "prototypes", "head"],
            "epochs": 2,
            "learning_rate": 5e-3,
            "decay": "cosine",
            "decay_factor": 0.05,
            "views": 2,
        },
        *_PROJECT_AND_FIT,
        {
            "step": "repeat",
            "times": 2,
            "steps": [
                {
                    "step": "train",
                    "name": "C",
                    "learns": _JOINT,
                    "epochs": 5,
                    "learning_rates": {"backbone": 2e-3},
                    "learning_rate": 4e-3,
                    "decay": "cosine",
                    "decay_factor": 0.05,
                },
                *_PROJECT_AND_FIT,
            ],
        },
    ],
}

# The names by which a study speaks of them.
SETTINGS: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "demo-first": DEMO_FIRST,
    "demo-second": DEMO_SECOND,
}
