"""Canonical JSON, in which equal values have equal text, and hashes of it."""

import hashlib
import json
from typing import Any

MAX_SEEDS = 10_000
MAX_SEED = 2**31 - 1
# Options of a study added after the first release; their defaults are left out of identities.
LATER = (
    *("box", "by", "cross", "folds", "limits", "neutral", "objectives", "points", "population"),
    *("prior", "race", "scheduler", "shift_seeds", "splits", "splits_seen", "warm_start", "when"),
)


def to_canonical_json(value: object) -> str:
    """Return a value as JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def compute_canonical_hash(content: object) -> str:
    """Return the SHA-256 of a value's canonical JSON, as 64 hex digits."""
    return hashlib.sha256(to_canonical_json(content).encode()).hexdigest()


def drop_unused(dump: Any) -> Any:
    """Return a dumped study without the options that later versions added and that are unused.

    The identity of a sweep is a hash of such dumps, and so stays the same in later versions.
    """
    if isinstance(dump, list):
        return [drop_unused(value) for value in dump]
    if not isinstance(dump, dict):
        return dump
    return {key: drop_unused(dump[key]) for key in dump if not _is_unused(dump, key)}


def _is_unused(options: dict[str, Any], key: str) -> bool:
    """Return whether an option was added after the first release and has its default."""
    if key in LATER:
        return options[key] in (None, {}, [])
    if key == "rank":  # of `around`
        return "best_of" in options and options[key] == 1
    # `exclude` is an older option in designs other than compare
    return key == "exclude" and options.get("design") == "compare" and not options[key]
