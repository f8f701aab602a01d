"""Memory that the C library keeps between steps."""

from __future__ import annotations

import ctypes
import sys

# Numbers of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Let glibc hold on to freed memory instead of giving it back at every step.

    Feature maps above 32 MiB otherwise get fresh pages each time, which the kernel zeroes one by
    one: a tenth of a fine-tuning step. Holds for the process; the peak stays what it is. Returns
    whether there was a glibc to tell.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, as musl
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
