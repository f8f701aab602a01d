"""A start that is not slowed by the garbage collector.

Loading torch and reading a spec make some hundred thousand objects, nearly all of which live as
long as the process. The collector goes through them again and again while they come, and once
more when the process ends: a third of the time of a plan, for nothing that it could free.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No cyclic garbage is looked for inside; as it was before, after."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def end_quickly() -> None:
    """What lives when the process ends is not searched for garbage. Of a process's own end only:
    whoever calls `main` from Python keeps a collector that sees everything."""
    atexit.register(gc.freeze)
