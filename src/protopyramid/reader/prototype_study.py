"""What a run's prototypes do: how often each matters, what it costs to remove it, its nearest cases.

Found in a thread of its own, since images may have to be passed through the network first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protopyramid.data.images import hash_files
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.inference.score_table import read_scores
from protopyramid.prototypes.editing import HeadEditor, editor_of
from protopyramid.prototypes.neighbours import Neighbour, nearest_images
from protopyramid.reader.answers import region_json
from protopyramid.reader.settings import busy
from protopyramid.runs.provenance import samples_of
from protopyramid.runs.run import Run

MOST_CASES = 400  # training cases among which neighbours are searched
NEAREST = 6
COMPARED = 3  # images whose content tells whether a manifest is the one of training


class _Stopped(Exception):
    """The server ends."""


class PrototypeStudy:
    """Answers about the prototypes of one run, as far as they are known; asking never waits.

    manifest: that of the server, used where it holds the images that the run was trained on.
    """

    def __init__(self, run: Run, manifest: Path | None = None) -> None:
        self._run, self._manifest = run, manifest
        self._progress = (0, 0)
        self._uses: list[dict[str, Any]] | None = None
        self.scored: Path | None = (
            None  # the manifest whose images edits are fitted to; None: as the run
        )
        self._editor: HeadEditor | None = None
        self._neighbours: list[list[Neighbour]] | None = None
        self._errors: dict[str, str] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="prototypes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the batch in hand."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        for task in (self._find_uses, self._find_neighbours):
            try:
                task()
            except _Stopped:
                return
            except UserError as error:
                self._errors[task.__name__] = " ".join(str(error).split())

    def _find_uses(self) -> None:
        # Kept scores are of all images that the run was trained on; a manifest may hold some of them only.
        self.scored = None if read_scores(self._run) else self._data()
        editor = editor_of(self._run, self.scored, self._step)
        costs = {cost.index: cost.to_json() for cost in editor.removal_costs()}
        self._editor = editor
        self._uses = [{**use.to_json(), "removal": costs[use.index]} for use in editor.uses()]

    def _find_neighbours(self) -> None:
        self._neighbours = nearest_images(self._run, self._training(), NEAREST, self._step)

    def _training(self) -> Sequence[Sample]:
        """Training cases, at most MOST_CASES, evenly spaced."""
        found = samples_of(self._run, self._data(), "train")
        return found[:: max(1, -(-len(found) // MOST_CASES))]

    def _data(self) -> Path | None:
        """The server's manifest where it holds the run's own training images; else what the run knows."""
        if self._manifest is None:
            return None
        try:
            first = samples_of(self._run, self._manifest, "train")[:COMPARED]
            digests = hash_files([sample.image for sample in first], 1)
        except UserError:
            return None
        known = self._run.provenance.splits.get("train", {})
        same = [known.get(s.name) == digest for s, digest in zip(first, digests, strict=True)]
        return self._manifest if same and all(same) else None

    def _step(self, done: int, total: int) -> None:
        self._progress = (done, total)
        if self._stopped.is_set():
            raise _Stopped

    def to_json(self) -> dict[str, Any]:
        """How often each prototype matters and what it costs to remove it, or how far the study is."""
        done, total = self._progress
        return {
            "looked_at": done,
            "images": total,
            "prototypes": self._uses,
            "error": self._errors.get("_find_uses"),
        }

    def editor(self) -> HeadEditor:
        """What plans edits; Refusal (503) until it is ready."""
        if "_find_uses" in self._errors:
            raise UserError(self._errors["_find_uses"])
        if self._editor is None:
            raise busy("the model's images are being scored")
        return self._editor

    def neighbours_json(self, index: int) -> dict[str, Any]:
        """The training cases nearest to a prototype, nearest first, or how far the search is."""
        done, total = self._progress
        found = None
        if self._neighbours is not None:
            found = [
                {**each.to_json(), **region_json(each.region)} for each in self._neighbours[index]
            ]
        error = self._errors.get("_find_neighbours")
        return {"neighbours": found, "looked_at": done, "images": total, "error": error}

    def neighbour(self, index: int, place: int) -> Sample | None:
        """The training case that is the nearest but `place` to a prototype."""
        known = self._neighbours[index] if self._neighbours is not None else []
        return known[place].sample if 0 <= place < len(known) else None
