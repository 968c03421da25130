"""One thread that runs the networks: waiting requests of the same kind for one run share a pass."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from protopyramid.reader.settings import busy
from protopyramid.runs.run import Run

Work = Callable[[Run, Sequence[Any]], list[Any]]  # one result per item


@dataclass(frozen=True, eq=False)
class _Job:
    run: Run
    work: Work
    item: Any
    done: Future[Any] = field(default_factory=Future)

    def joins(self, other: _Job) -> bool:
        """Whether two jobs can share a pass."""
        return self.run is other.run and self.work is other.work


class InferenceWorker:
    """Runs `work(run, items)` in its own thread, for at most `batch` items at once.

    At most `waiting` items wait; more are refused. An item whose asker has gone is skipped.
    """

    def __init__(self, waiting: int, batch: int) -> None:
        self._waiting, self._batch = waiting, batch
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)
        self._thread.start()

    def submit(self, run: Run, work: Work, item: Any) -> Future[Any]:
        """Queue an item; Refusal (503) where too many are waiting."""
        job = _Job(run, work, item)
        with self._changed:
            if self._closed or len(self._jobs) >= self._waiting:
                raise busy()
            self._jobs.append(job)
            self._changed.notify()
        return job.done

    def close(self) -> None:
        """Finish the batch in hand, cancel the rest and end the thread."""
        with self._changed:
            self._closed = True
            while self._jobs:
                self._jobs.pop().done.cancel()
            self._changed.notify()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                jobs = self._take()
            jobs = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            if jobs:
                _perform(jobs)

    def _take(self) -> list[_Job]:
        """The job that has waited longest, and those behind it that can share its pass."""
        first = self._jobs[0]
        taken = [job for job in self._jobs if job.joins(first)][: self._batch]
        chosen = set(map(id, taken))
        self._jobs = deque(job for job in self._jobs if id(job) not in chosen)
        return taken


def _perform(jobs: Sequence[_Job]) -> None:
    try:
        results = jobs[0].work(jobs[0].run, [job.item for job in jobs])
    except Exception as error:
        if len(jobs) == 1:
            jobs[0].done.set_exception(error)
            return
        for job in jobs:  # one by one, so that an item fails only by itself
            _perform([job])
        return
    for job, result in zip(jobs, results, strict=True):
        job.done.set_result(result)
