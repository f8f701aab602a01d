"""Canonical JSON, in which equal values have equal text, and hashes of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

MAX_SEEDS = 10_000
MAX_SEED = 2**31 - 1
# Options of a study added after the first release; their defaults are left out of identities.
LATER = (
    *("box", "by", "cross", "folds", "neutral", "objectives", "points", "population", "race"),
    *("scheduler", "shift_seeds", "splits", "splits_seen", "warm_start", "when"),
)


def to_canonical_json(value: object) -> str:
    """Return a value as JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def compute_canonical_hash(content: object) -> str:
    """Return the SHA-256 of a value's canonical JSON, as 64 hex digits."""
    return hashlib.sha256(to_canonical_json(content).encode()).hexdigest()


def drop_unused(dump: Any) -> Any:
    """Drop unused options of later versions from a dump, so that identities stay the same."""
    if isinstance(dump, dict):
        return {
            key: drop_unused(value)
            for key, value in dump.items()
            if not (key in LATER and value in (None, {}, []))
            and not ("best_of" in dump and key == "rank" and value == 1)
            and not (dump.get("design") == "compare" and key == "exclude" and not value)
        }
    return [drop_unused(value) for value in dump] if isinstance(dump, list) else dump
