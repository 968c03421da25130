"""FPN-IAIA-BL and its kin: multi-scale, case-based, inherently interpretable image classification.

Every public name is imported when it is first used, so `import protopyramid` is instant.

Examples:
    >>> import protopyramid as pp
    >>> config = pp.load_config("fpn-iaia-bl", {"train.seed": 1})
    >>> run = pp.train(config, "data/manifest.csv", "runs/first")       # doctest: +SKIP
    >>> pp.evaluate(run)                                                # doctest: +SKIP
    >>> pp.explain(run, "lesion.png").save("why.png")                   # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protopyramid import losses
    from protopyramid.api import compare, evaluate, explain, export, predict, train
    from protopyramid.config import dump_config, load_config
    from protopyramid.errors import UserError
    from protopyramid.model import build_model
    from protopyramid.runs.run import load_run

__version__ = "0.1.0"
__all__ = [
    "UserError",
    "__version__",
    "build_model",
    "compare",
    "dump_config",
    "evaluate",
    "explain",
    "export",
    "load_config",
    "load_run",
    "losses",
    "predict",
    "train",
]

# The public functions and classes, and the modules they live in.
_HOMES = {
    "UserError": "protopyramid.errors",
    "build_model": "protopyramid.model",
    "compare": "protopyramid.api",
    "dump_config": "protopyramid.config",
    "evaluate": "protopyramid.api",
    "explain": "protopyramid.api",
    "export": "protopyramid.api",
    "load_config": "protopyramid.config",
    "load_run": "protopyramid.runs.run",
    "predict": "protopyramid.api",
    "train": "protopyramid.api",
}


def __getattr__(name: str) -> Any:
    if name == "losses":
        return import_module("protopyramid.losses")
    if name not in _HOMES:
        raise AttributeError(f"module 'protopyramid' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
