"""How many seeds a study may have, and how large one may be; imports nothing."""

from __future__ import annotations

MAX_SEEDS = 10_000
MAX_SEED = 2**31 - 1
