"""The C allocator of a long computation: memory that is freed is kept for the next step.

glibc takes every block of more than 32 MB fresh from the system and gives it back when it is freed. The
system hands memory out in pages of 4 kB, each cleared when it is first touched, and a training step has
tens of such blocks: at 224 px and 32 images, making the pages of a map took longer than computing it.
Numbers do not change; the process holds the memory of its largest step until it ends.
"""

from __future__ import annotations

import ctypes
import os

# malloc.h: no blocks of their own from the system; never give the heap's end back.
NO_BLOCKS_OF_THEIR_OWN, NEVER_TRIM = (-4, 0), (-1, -1)
SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_freed_memory() -> bool:
    """Keep freed memory for reuse; says whether the system's allocator can (glibc).

    Settings that the user gave in the environment stay as they are.
    """
    if any(name in os.environ for name in SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(*NO_BLOCKS_OF_THEIR_OWN), mallopt(*NEVER_TRIM)])
