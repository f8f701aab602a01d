"""How many steps or kills a long test takes: few in CI, many in `make soak`."""

from __future__ import annotations

import os

SOAK = "ABLATE_TEST_SOAK"  # set by `make soak`


def steps(short: int, soak: int = 1000) -> int:
    """Return the number for CI, or that for `make soak`."""
    return soak if os.environ.get(SOAK) else short
