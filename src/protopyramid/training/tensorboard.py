"""TensorBoard: the scalars of every record, and the prototypes' pictures at the end.

Optional: without the package tensorboard, nothing is written and one line says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = (
    "TensorBoard logs are skipped: the package is not installed "
    "(pip install 'protopyramid[tensorboard]')"
)


class Board:
    """Writes TensorBoard events; a board that is not enabled does nothing."""

    def __init__(self, folder: Path, enabled: bool, say: Callable[[str], None]) -> None:
        self._folder, self._enabled, self._say = folder, enabled, say
        self._writer: Any = None
        self._step = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Write the scalars of a record of metrics.jsonl."""
        self._step = int(record.get("epoch", self._step))
        writer = self._open()
        if writer is not None:
            for name, value in scalars(record).items():
                writer.add_scalar(name, value, self._step)

    def add_picture(self, name: str, picture: NDArray[np.float32]) -> None:
        """Write a picture, grey (H, W) or colour (H, W, 3), with values in [0, 1]."""
        writer = self._open()
        if writer is not None:
            order = "HW" if picture.ndim == 2 else "HWC"
            writer.add_image(name, picture, self._step, dataformats=order)

    def close(self) -> None:
        """Write what is pending."""
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> Any:
        """The writer, or None where nothing is to be written."""
        if self._writer is None and self._enabled:
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError:
                self._enabled = False
                self._say(MISSING)
                return None
            self._writer = SummaryWriter(str(self._folder))
        return self._writer


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record by name.

    >>> scalars({"kind": "epoch", "losses": {"fine": 2.0}, "validation": {"auroc": 0.5}, "epoch": 1})
    {'losses/fine': 2.0, 'validation/auroc': 0.5}
    """
    groups = ("losses", "validation", "nearest_similarity")
    found = {
        f"{group}/{name}": float(value)
        for group in groups
        for name, value in (record.get(group) or {}).items()
        if value is not None
    }
    if "images_per_second" in record:
        found["speed/images_per_second"] = float(record["images_per_second"])
    return found
