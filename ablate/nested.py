"""Nested mappings by dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def leaves(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mapping → `{"optimizer.lr": 0.1, …}`; empty mappings and lists are values."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= leaves(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found
