"""A small study of two readers, complete, for tests of what comes after."""

from __future__ import annotations

from pathlib import Path

from protopyramid.data.manifest import Manifest
from protopyramid.reader.readings.plan import make_plan
from protopyramid.reader.readings.store import Answer, ReadingStore
from protopyramid.runs.run import Run


def write_readings(folder: Path, run: Run, manifest: Manifest) -> None:
    """Two readers who have read three cases."""
    cases = manifest.split("test")[:3]
    with ReadingStore.create(folder, make_plan(run, "run", cases, seed=0)) as store:
        for reader in ("a", "b"):
            store.enrol(reader)
            while (due := store.due(reader)) is not None:
                store.opened(reader, due)
                store.suggested(reader, due, "spiculated", {"spiculated": 0.9})
                store.answer(reader, due.place, due.stage, Answer("spiculated", 50, "4A", 1.0))
