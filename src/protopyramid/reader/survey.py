"""What prototypes do on the served cases: how often each matters, and which cases are nearest to it.

One pass over the cases, in small batches between the requests of users; everything else is arithmetic on
the scores, which the head turns into logits linearly.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.activation import activation_region
from protopyramid.prototypes.cases import prototype_map
from protopyramid.reader.answers import region_json
from protopyramid.reader.settings import Refusal
from protopyramid.reader.worker import InferenceWorker
from protopyramid.runs.run import Run

Array = NDArray[np.float64]

MOST_CASES = 400  # of each of the two groups: training cases, and others
BATCH = 4  # cases between which a user's request is answered
NEAREST = 6
STRONGEST = 3  # prototypes of a case that matter


@dataclass(frozen=True)
class Look:
    """What the model sees in one case: logits (C,), scores (m,), and per prototype the peak and its map."""

    logits: Array
    scores: Array
    peaks: Array
    maps: list[Tensor] = field(repr=False)


def look_at(run: Run, images: Sequence[Tensor]) -> list[Look]:
    """What the model sees in images (C, S, S)."""
    batch = torch.stack([image.expand(3, -1, -1) for image in images])
    ready = model_input(batch, run.config.data, device_of(run.model))
    with torch.inference_mode():
        found = run.model.forward_once(ready)
    maps = [prototype_map(run.model, found.maps, r.index).cpu().half() for r in run.prototypes]
    return [
        Look(
            found.logits[row].double().cpu().numpy(),
            found.scores[row].double().cpu().numpy(),
            np.array([float(each[row].max()) for each in maps]),
            [each[row] for each in maps],
        )
        for row in range(len(images))
    ]


class Survey:
    """A pass over the served cases in a thread of its own; what is asked of it is told when it is done."""

    def __init__(self, run: Run, cases: Sequence[Sample], worker: InferenceWorker) -> None:
        self._run, self._worker = run, worker
        known = set(run.config.data.classes)
        numbered = [(n, case) for n, case in enumerate(cases) if case.label in known]
        train = [each for each in numbered if each[1].split == "train"]
        others = [each for each in numbered if each[1].split != "train"]
        self._taken = [*_spaced(train), *_spaced(others)]
        self._counted = [n for n, case in self._taken if case.split != "train"] or [
            n for n, _ in self._taken
        ]
        self._looks: dict[int, Look] = {}
        self._error: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="survey", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the batch in hand."""
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        try:
            for start in range(0, len(self._taken), BATCH):
                part = self._taken[start : start + BATCH]
                data = self._run.config.data
                images = [prepare_sample(case, data).image for _, case in part]
                waiting = [self._submit(image) for image in images]
                for (number, _), one in zip(part, waiting, strict=True):
                    self._looks[number] = one.result()
                if self._stopped.is_set():
                    return
                self._forget_maps()
        except (UserError, Refusal) as error:
            self._error = str(error)

    def _submit(self, image: Tensor) -> Any:
        """Queue a case; where users' requests fill the queue, wait for them."""
        while True:
            try:
                return self._worker.submit(self._run, look_at, image)
            except Refusal:
                if self._stopped.wait(0.5):
                    raise

    def _forget_maps(self) -> None:
        """Keep the maps only of cases that are near some prototype."""
        kept = {number for index in range(self._count) for number in self._nearest(index)}
        for number, look in self._looks.items():
            if number not in kept:
                look.maps.clear()

    @property
    def _count(self) -> int:
        return len(self._run.prototypes)

    @property
    def _neighbourhood(self) -> list[int]:
        """Cases among which neighbours are searched: those of training where there are any."""
        train = [n for n, case in self._taken if case.split == "train" and n in self._looks]
        return train or [n for n, _ in self._taken if n in self._looks]

    def _nearest(self, index: int) -> list[int]:
        numbers = self._neighbourhood
        return sorted(numbers, key=lambda number: -self._looks[number].peaks[index])[:NEAREST]

    def to_json(self) -> dict[str, Any]:
        """How far the survey is; when it is done, how often each prototype matters."""
        answer: dict[str, Any] = {
            "cases": len(self._taken),
            "looked_at": len(self._looks),
            "counted": len(self._counted),
            "error": self._error,
            "prototypes": None,
        }
        if self._counted and all(number in self._looks for number in self._counted):
            scores = np.stack([self._looks[number].scores for number in self._counted])
            weight = self._run.model.head.weight.detach().cpu().double().numpy()
            answer["prototypes"] = use_of_prototypes(scores, weight)
        return answer

    def neighbours(self, index: int) -> list[dict[str, Any]]:
        """The cases nearest to a prototype, nearest first; 409 before all are looked at."""
        if len(self._looks) < len(self._taken):
            raise Refusal(409, "the cases are still being looked at; try again in a moment")
        size = self._run.config.data.image_size
        cases = dict(self._taken)
        return [
            {
                "number": number,
                "image": cases[number].name,
                "label": cases[number].label,
                "split": cases[number].split,
                "similarity": float(self._looks[number].peaks[index]),
                **region_json(
                    activation_region(self._looks[number].maps[index].float(), size, size)
                ),
            }
            for number in self._nearest(index)
        ]


def use_of_prototypes(scores: Array, weight: Array) -> list[dict[str, Any]]:
    """How often each prototype matters: scores (N, m), head weights (C, m).

    matters: share of the images in which it is one of the three that add most to the predicted class.
    decides: share in which another class would be predicted without it.
    """
    contributions = scores[:, None, :] * weight[None]  # (N, C, m)
    logits = contributions.sum(2)
    predicted = logits.argmax(1)
    rows = np.arange(len(scores))
    to_predicted = contributions[rows, predicted]  # (N, m)
    strongest = np.argsort(-to_predicted, 1, kind="stable")[:, :STRONGEST]
    found = []
    for index in range(scores.shape[1]):
        matters = (strongest == index).any(1) & (to_predicted[:, index] > 0)
        without = (logits - contributions[:, :, index]).argmax(1)
        found.append(
            {
                "matters": float(matters.mean()),
                "decides": float((without != predicted).mean()),
                "mean_contribution": float(to_predicted[:, index].mean()),
            }
        )
    return found


def _spaced(cases: list[tuple[int, Sample]]) -> list[tuple[int, Sample]]:
    """At most MOST_CASES of them, evenly spaced."""
    step = max(1, -(-len(cases) // MOST_CASES))
    return cases[::step]
