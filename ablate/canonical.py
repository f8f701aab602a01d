"""Canonical JSON: one text for equal values, and the hash of one."""

from __future__ import annotations

import hashlib
import json


def canonical(value: object) -> str:
    """A value as text by which values are told apart: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def canonical_hash(content: object) -> str:
    """SHA-256 of it, 64 hex digits."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()
