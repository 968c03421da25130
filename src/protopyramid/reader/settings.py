"""What the reader allows, and what it answers when something is refused."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Bounds that keep the server's memory and time finite, whatever is sent to it."""

    upload_bytes: int = 128 * MEGABYTE
    bodies_bytes: int = 512 * MEGABYTE  # of all requests that are being received or answered
    pixels: int = 64 * MEGABYTE  # of an image, and of a region cut from it
    films_bytes: int = 1_000 * MEGABYTE  # opened films that are kept; the oldest are dropped
    waiting: int = 64  # explanations asked for and not yet answered
    batch: int = 16  # images that the network sees at once
    decoders: int = 2  # threads that decode and draw
    request_seconds: float = 120.0
    cases: int = 2_000  # rows of the manifest that are listed


class Refusal(Exception):
    """A request that is not answered; the message is one line for the user."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def busy(what: str = "the model is busy with other requests") -> Refusal:
    """The answer to a request for which there is no room now."""
    return Refusal(503, f"{what}; try again in a moment", retry_after=1)
