"""The C allocator of a long computation: freed memory is kept for the next optimiser step.

glibc requests every block of more than 32 MB from the system and returns it when it is freed. The system
hands out memory in pages of 4 kB, each cleared when it is first touched, and an optimiser step has tens
of such blocks: at 224 px and 32 images, clearing the pages of a map took longer than computing it.
Results do not change; the process holds the memory of its largest step until it ends.
"""

from __future__ import annotations

import ctypes
import os

# malloc.h: M_MMAP_MAX = 0, no separate blocks; M_TRIM_THRESHOLD = -1, never shrink the heap.
NO_SEPARATE_BLOCKS, NEVER_TRIM = (-4, 0), (-1, -1)
SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_freed_memory() -> bool:
    """Keep freed memory for reuse; returns whether the C library supports it (glibc does).

    Settings in the user's environment take precedence.
    """
    if any(name in os.environ for name in SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(*NO_SEPARATE_BLOCKS), mallopt(*NEVER_TRIM)])
