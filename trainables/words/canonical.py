"""Canonical JSON, in which equal values have equal text, and hashes of it."""

import hashlib
import json


def to_canonical_json(value: object) -> str:
    """Return a value as JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def compute_canonical_hash(content: object) -> str:
    """Return the SHA-256 of a value's canonical JSON, as 64 hex digits."""
    return hashlib.sha256(to_canonical_json(content).encode()).hexdigest()
