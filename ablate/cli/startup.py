"""A process that ends as soon as its work is done."""

from __future__ import annotations

import atexit
import gc
import sys

COUNTS = (
    "triton"  # comes with a network's building, and tells at its end of all that is still there
)


def end_quickly() -> None:
    """What lives when the process ends is not searched for garbage, which takes longer than many a
    plan's own work. Of a process's own end only: whoever calls `main` from Python keeps a collector
    that sees everything."""
    atexit.register(_end)


def _end() -> None:
    if COUNTS not in sys.modules:
        gc.freeze()
