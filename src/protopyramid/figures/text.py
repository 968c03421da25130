"""Numbers and names as figures, pages and cards write them: one place for every format."""

from __future__ import annotations

import math
from collections.abc import Sequence

MISSING = "–"


def percent(share: float) -> str:
    """A share in whole percent; what is not quite none or all is not rounded to it.

    >>> percent(0.413), percent(0.001), percent(0.999), percent(0.0)
    ('41%', '<1%', '>99%', '0%')
    """
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def signed(value: float) -> str:
    """A number with its sign, two decimals.

    >>> signed(0.5), signed(-0.5), signed(-0.001)
    ('+0.50', '−0.50', '+0.00')
    """
    rounded = round(value, 2) + 0.0
    return f"{'−' if rounded < 0 else '+'}{abs(rounded):.2f}"


def decimal(value: float) -> str:
    """A number with two decimals and a real minus sign.

    >>> decimal(-0.5)
    '−0.50'
    """
    return f"{value:.2f}".replace("-", "−")


def figure_text(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A result with its interval; a dash where there is none.

    >>> figure_text(0.8125, [0.7, 0.9]), figure_text(None)
    ('0.81 (0.70 to 0.90)', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{value:.2f}{between}"


def counted(number: int, what: str, plural: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "prototype"), counted(2, "prototype"), counted(2, "class", "classes")
    ('1 prototype', '2 prototypes', '2 classes')
    """
    return f"{number} {what}" if number == 1 else f"{number} {plural or what + 's'}"


def listed(names: Sequence[str], last: str = "or") -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + f" {last} {names[-1]}"


def shortened(text: str, length: int = 22) -> str:
    """A text on one line, cut with an ellipsis.

    >>> shortened("a  very long name", 8)
    'a very …'
    """
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def shortened_path(text: str, length: int = 60) -> str:
    """A path cut at its beginning: its end identifies the file.

    >>> shortened_path("a/long/way/to/x.png", 9)
    '…to/x.png'
    """
    return text if len(text) <= length else f"…{text[-(length - 1) :]}"
