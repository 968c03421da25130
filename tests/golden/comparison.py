"""How what is found differs from what was recorded.

What is new is no difference: users rely on what was there. Numbers may differ a little, as they do
between processors, and digests of bytes count only where the processor is the recorded one.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

RELATIVE, ABSOLUTE = 2e-3, 2e-4
# Shares of pixels above a threshold: on another processor a few pixels fall on its other side.
PIXELS, OF_PIXELS = re.compile(r"activation_precision|localisation"), 5e-3
TIMES = {"images_per_second"}
ITERATIONS = {"iterations"}  # a solver may need one more where the last bits differ
FLAGS = ("sse4_1", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_tile", "asimd")
LIBRARIES = ("torch", "numpy", "pillow", "safetensors")
SETS = {"files", "names"}  # lists whose order does not matter, and that may grow
DIGEST = re.compile(r"[0-9a-f]{64}")
DIGITS = re.compile(r"\d")


def signature() -> dict[str, Any]:
    """What the last bits of a computation depend on: the processor and the libraries."""
    source = Path("/proc/cpuinfo")
    text = source.read_text() if source.exists() else ""
    vendor = re.search(r"^(?:vendor_id|CPU implementer)\s*: *(.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: *(.*)$", text, re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    return {
        "machine": platform.machine(),
        "vendor": vendor[1] if vendor else platform.processor(),
        "flags": [flag for flag in FLAGS if flag in has],
        "versions": {name: version(name) for name in LIBRARIES},
    }


def differences(expected: Any, found: Any, exact: bool, path: str = "") -> Iterator[str]:
    """What of the expected is missing or different; `exact`: digests must be equal too."""
    if type(expected) is not type(found):
        yield f"{path}: {expected!r} was recorded, {found!r} found"
    elif isinstance(expected, dict):
        yield from _of_mappings(expected, found, exact, path)
    elif isinstance(expected, list):
        yield from _of_lists(expected, found, exact, path)
    elif isinstance(expected, float):
        absolute = OF_PIXELS if PIXELS.search(path) and not exact else ABSOLUTE
        if not _near(expected, found, absolute):
            yield f"{path}: {expected!r} was recorded, {found!r} found"
    elif not exact and isinstance(expected, str) and ".warnings[" in path:
        if DIGITS.sub("", expected) != DIGITS.sub("", found):  # figures within a sentence
            yield f"{path}: {expected!r} was recorded, {found!r} found"
    elif not _same(expected, found, exact):
        yield f"{path}: {expected!r} was recorded, {found!r} found"


def missing(expected: list[str], found: list[str]) -> list[str]:
    """The names that were recorded and are no more."""
    return sorted(set(expected) - set(found))


def _of_mappings(
    expected: dict[str, Any], found: dict[str, Any], exact: bool, path: str
) -> Iterator[str]:
    for key, value in expected.items():
        place = f"{path}.{key}" if path else key
        if key not in found:
            yield f"{place}: missing"
        elif key in TIMES or (key in ITERATIONS and not exact):
            if type(value) is not type(found[key]):
                yield f"{place}: {found[key]!r} is of another type"
        elif key in SETS:
            yield from (f"{place}: {name} is missing" for name in missing(value, found[key]))
        else:
            yield from differences(value, found[key], exact, place)


def _of_lists(expected: list[Any], found: list[Any], exact: bool, path: str) -> Iterator[str]:
    if len(expected) != len(found):
        yield f"{path}: {len(expected)} entries were recorded, {len(found)} found"
        return
    for index, pair in enumerate(zip(expected, found, strict=True)):
        yield from differences(*pair, exact, f"{path}[{index}]")


def _near(expected: float, found: float, absolute: float) -> bool:
    if math.isnan(expected):
        return math.isnan(found)
    return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=absolute)


def _same(expected: Any, found: Any, exact: bool) -> bool:
    if isinstance(expected, str) and DIGEST.fullmatch(expected) and not exact:
        return bool(DIGEST.fullmatch(found))
    return bool(expected == found)
