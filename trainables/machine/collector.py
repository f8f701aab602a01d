"""A while without the garbage collector.

Loading torch, reading a spec or walking through syntax trees makes some hundred thousand objects,
nearly all of which stay. The collector goes through them, and all else that the process holds,
again and again while they come.
"""

from __future__ import annotations

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
