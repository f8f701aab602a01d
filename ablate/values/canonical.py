"""Canonical JSON: one text for equal values, its hash, and what of a dump counts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

MAX_SEEDS = 10_000
MAX_SEED = 2**31 - 1
# Options of a study that came after the first sweeps; unused, they are no part of its identity.
LATER = (
    *("by", "cross", "folds", "neutral", "objectives", "population", "race", "scheduler"),
    *("shift_seeds", "splits", "splits_seen", "when"),
)


def to_canonical_json(value: object) -> str:
    """Return a value as text by which values are told apart: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def compute_canonical_hash(content: object) -> str:
    """Return SHA-256 of it, 64 hex digits."""
    return hashlib.sha256(to_canonical_json(content).encode()).hexdigest()


def drop_unused(dump: Any) -> Any:
    """Drop options that came later and are not used: they leave a sweep what it was."""
    if isinstance(dump, dict):
        return {
            key: drop_unused(value)
            for key, value in dump.items()
            if not (key in LATER and value in (None, {}, []))
            and not ("best_of" in dump and key == "rank" and value == 1)
            and not (dump.get("design") == "compare" and key == "exclude" and not value)
        }
    return [drop_unused(value) for value in dump] if isinstance(dump, list) else dump
