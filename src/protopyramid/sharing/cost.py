"""What 8-bit weights cost: the same rows predicted by a run and by its packed form."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.manifest import Sample
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.split import evaluated_split
from protopyramid.inference.batches import evidence_batches
from protopyramid.metrics.auroc import class_aurocs, mean_of_known
from protopyramid.metrics.softmax import softmax
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.eight_bit import to_eight_bits, to_floats
from protopyramid.runs.package import EIGHT_BIT
from protopyramid.runs.run import Run
from protopyramid.utils.progress import Bars, no_bar

Array = NDArray[np.float64]
MEAN = "mean"


@dataclass(frozen=True)
class Cost:
    """AUROC of each class and their mean, with all bits and with 8, on the same rows.

    `changed`: images that get another class; `largest`: the largest change of a probability; `full_bytes`
    and `packed_bytes`: of the weights.
    """

    images: int
    full: Mapping[str, float | None]
    packed: Mapping[str, float | None]
    changed: int
    largest: float
    full_bytes: int
    packed_bytes: int

    @property
    def difference(self) -> float | None:
        """How much mean AUROC is lost; negative where it is gained."""
        before, after = self.full[MEAN], self.packed[MEAN]
        return None if before is None or after is None else before - after

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**vars(self), "difference": self.difference}


def eight_bit_cost(
    runs: Sequence[Run], data: Path | None = None, split: str = "test", bars: Bars = no_bar
) -> Cost:
    """The cost of 8 bits on a split, by default of each run's own manifest; rows of all runs are pooled.

    The runs of a cross-validation give the cost out of fold. An image that a run has trained on is refused.
    """
    first = runs[0].config.data
    parts: list[tuple[Array, Array, NDArray[np.int64]]] = []
    for run in runs:
        if run.config.data.classes != first.classes:
            raise UserError(f"{run.folder.path}: has other classes than {runs[0].folder.path}")
        _, metadata = run.folder.read_tensors(layout.MODEL)
        if metadata.get("weights") == EIGHT_BIT:
            raise UserError(
                f"{run.folder.path}: has 8-bit weights already; give the run that it was packed from"
            )
        samples = evaluated_split(run, data, split).samples
        labels = np.array([first.classes.index(each.label) for each in samples])
        with bars(f"{run.name}, all bits") as update:
            full = _probabilities(run.model, run, samples, update)
        with bars(f"{run.name}, 8 bits") as update:
            packed = _probabilities(eight_bit_model(run), run, samples, update)
        parts.append((full, packed, labels))
    full, packed = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
    labels = np.concatenate([part[2] for part in parts])
    tensors = {name: each.cpu() for name, each in runs[0].model.state_dict().items()}
    return Cost(
        images=len(labels),
        full=_aurocs(full, labels, first.classes, first.negative_class),
        packed=_aurocs(packed, labels, first.classes, first.negative_class),
        changed=int((full.argmax(1) != packed.argmax(1)).sum()),
        largest=float(np.abs(full - packed).max()),
        full_bytes=_bytes(tensors),
        packed_bytes=_bytes(to_eight_bits(tensors)),
    )


def eight_bit_model(run: Run) -> PrototypeNetwork:
    """The network of a run as its packed form restores it."""
    model = copy.deepcopy(run.model)
    tensors = {name: each.cpu() for name, each in run.model.state_dict().items()}
    model.load_state_dict(to_floats(to_eight_bits(tensors)))
    return model.eval()


def _probabilities(
    model: PrototypeNetwork, run: Run, samples: Sequence[Sample], update: Any
) -> Array:
    store = ImageStore(samples, run.config.data)
    parts = []
    for batch in evidence_batches(model, store, batch_size=run.config.train.eval_batch_size):
        parts.append(batch.evidence.logits.double().cpu().numpy())
        update(batch.images[-1] + 1, len(samples))
    return softmax(np.concatenate(parts))


def _aurocs(
    probabilities: Array, labels: NDArray[np.int64], classes: Sequence[str], negative: str
) -> dict[str, float | None]:
    found = class_aurocs(probabilities, labels, classes, negative)
    return {**found, MEAN: mean_of_known(found)}


def _bytes(tensors: Mapping[str, Any]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors.values())
