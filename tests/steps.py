"""How many steps a long run takes: few in CI, as many as its issue asked for in `make soak`."""

from __future__ import annotations

import os

SOAK = "ABLATE_TEST_SOAK"  # set by `make soak`


def steps(short: int, soak: int = 1000) -> int:
    return soak if os.environ.get(SOAK) else short
