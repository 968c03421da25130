"""The names of all files of a run folder: spelled here and nowhere else.

config.toml  model.safetensors  prototypes.json  prototypes/NNN.png  metrics.jsonl  thresholds.json
scores.safetensors  evaluation/SPLIT.json  report.html  MODEL_CARD.md  data.json  checkpoint/  format
model.json  cases/  (packed models only)
"""

from __future__ import annotations

from urllib.parse import quote

FORMAT_VERSION = 1  # of this layout; any other is refused
# As 1, but a packed model whose weights may have 8 bits and whose pictures may be missing. Software that
# cannot read these refuses the number.
PACKED_VERSION = 2

FORMAT = "format"
CONFIG = "config.toml"
MODEL = "model.safetensors"
PROTOTYPES = "prototypes.json"
PICTURES = "prototypes"
METRICS = "metrics.jsonl"
DATA = "data.json"
THRESHOLDS = "thresholds.json"
SCORES = "scores.safetensors"
EVALUATION = "evaluation"
REPORT = "report.html"
CARD = "MODEL_CARD.md"
CHECKPOINT = "checkpoint"
OCCLUSION_CONTROL = f"{EVALUATION}/control.json"
SHIFT_TEST = f"{EVALUATION}/moved.json"
EXPORT = "export"
PACKAGE = "model.json"
CASES = "cases"  # example images of a packed model, with a manifest
CASES_MANIFEST = f"{CASES}/manifest.csv"
RESERVED = frozenset(  # names that Windows keeps for devices
    ["con", "prn", "aux", "nul", *(f"{kind}{n}" for kind in ("com", "lpt") for n in range(10))]
)


def picture(index: int) -> str:
    """The source image of a prototype, at the model's input size."""
    return f"{PICTURES}/{index:03d}.png"


def part(split: str, source: str = "") -> str:
    """A split, or the rows of one source in it, in the names of the files below.

    >>> part("test"), part("test", "film"), part("test", "a/b")
    ('test', 'test@film', 'test@a%2Fb')
    """
    return f"{split}@{quote(source, safe='')}" if source else split


def evaluation(split: str, suffix: str = "json") -> str:
    """A result of `evaluate` on a split, or on a `part` of it."""
    return f"{EVALUATION}/{split}.{suffix}"


def saliency(split: str) -> str:
    """Where saliency maps of a run without prototypes activate on a split, or on a `part` of it."""
    return f"{EVALUATION}/{split}-saliency.json"


def flags(split: str) -> str:
    """How many images of a split are flagged as out of distribution."""
    return f"{EVALUATION}/{split}-flags.json"


def faithfulness(split: str) -> str:
    """The result of `faithfulness` on a split."""
    return f"{EVALUATION}/{split}-faithfulness.json"


def plot(split: str, name: str) -> str:
    """A plot of `evaluate` on a split."""
    return f"{EVALUATION}/{split}-{name}.png"


def exported(name: str, suffix: str) -> str:
    """The model of a run as a file for other programs; its description has the suffix .json."""
    return f"{EXPORT}/{name}{suffix}"
