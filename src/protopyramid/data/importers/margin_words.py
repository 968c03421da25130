"""Margins of masses in the words of radiologists, for datasets that describe them in text."""

from __future__ import annotations

import re

from protopyramid.data.importers.base import Options
from protopyramid.data.importers.reading import Unusable, short

# "speculated" is a common slip for spiculated, and no other margin sounds like it.
WORDS = {
    "circumscribed": ("circumscribed", "well defined"),
    "indistinct": ("indistinct", "ill defined", "illdefined"),
    "spiculated": ("spiculated", "speculated", "spiculation", "spiculations"),
    "microlobulated": ("microlobulated", "micro lobulated"),
    "obscured": ("obscured",),
}
THREE = ("circumscribed", "indistinct", "spiculated")
NEGATIONS = re.compile(r"\b(no|not|non|without|neither|nor|rather than|versus|vs)\b")
PATTERN = re.compile(
    r"\b(?:"
    + "|".join(
        f"(?P<{margin}>{'|'.join(sorted(words, key=len, reverse=True))})"
        for margin, words in WORDS.items()
    )
    + r")\b"
)


def margins_in(text: str) -> list[str]:
    """The margins that a text names, each once, in their order.

    >>> margins_in("Irregular mass, partly ILL-DEFINED and speculated"), margins_in("oval mass")
    (['indistinct', 'spiculated'], [])
    """
    found = [match.lastgroup or "" for match in PATTERN.finditer(_plain(text))]
    return list(dict.fromkeys(found))


def margin_label(text: str, options: Options) -> str:
    """The class of a mass whose margin is described by a text, by the options of the import.

    A clause that negates a margin is not interpreted: what it leaves is for a reader to say.
    """
    margins = margins_in(text)
    if not margins:
        raise Unusable(f"unknown margin: {short(text)!r}" if text.strip() else "unknown margin")
    clauses = re.split(r"[.,;:$]", _plain(text))
    if any(PATTERN.search(clause) and NEGATIONS.search(clause) for clause in clauses):
        raise Unusable(f"ambiguous margin: {short(text)!r}")
    if len(margins) > 1 and options.mixed == "drop":
        raise Unusable(f"mixed margins: {', '.join(margins)}")
    label = margins[0]
    if options.margins == "three" and label not in THREE:
        raise Unusable(f"margin is not one of the three classes: {label} (use --margins five)")
    return label


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text).strip().lower()
