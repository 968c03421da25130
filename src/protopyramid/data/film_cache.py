"""The films decoded last: one with several lesions is decoded once for rows that follow each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from protopyramid.data.io.decoding import Decoded

BUDGET = 256_000_000  # bytes: five films of 4,700 x 2,600 pixels


class FilmCache:
    """Decoded films by path, the most recent ones up to a number of bytes, and always the last.

    Threads that ask for a film that another one is decoding wait for it.
    """

    def __init__(self, decode: Callable[[Path], Decoded], budget: int = BUDGET) -> None:
        self._decode, self._budget = decode, budget
        self._films: dict[Path, Future[Decoded]] = {}  # the most recently used last
        self._lock = threading.Lock()

    def get(self, path: Path) -> Decoded:
        """The film of a file."""
        with self._lock:
            known = self._films.pop(path, None)
            film = self._films[path] = known or Future()
        if known is None:
            try:
                film.set_result(self._decode(path))
            except BaseException as error:
                with self._lock:
                    self._films.pop(path, None)
                film.set_exception(error)
            self._forget()
        return film.result()

    def _forget(self) -> None:
        with self._lock:
            done = [path for path, film in self._films.items() if film.done()]
            sizes = {path: self._films[path].result().image.nbytes for path in done}
            used = sum(sizes.values())
            for path in done[:-1]:
                if used <= self._budget:
                    return
                used -= sizes[path]
                del self._films[path]
