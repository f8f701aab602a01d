"""What the process that asks for a sweep is to Ray: whether it has joined one, and which file it
runs."""

from __future__ import annotations

import sys
from pathlib import Path


def joined() -> str | None:
    """The address of the Ray that this process has started or joined itself, if it has."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


def script() -> str:
    """The file that the user runs, if modules are found beside it; empty otherwise."""
    path = Path(sys.argv[0] or ".").resolve()
    return str(path) if path.is_file() and str(path.parent) in sys.path else ""
