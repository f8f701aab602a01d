"""How what was found and what was expected are written in a message."""

from __future__ import annotations

import json
from collections.abc import Iterable


def listed(words: Iterable[object]) -> str:
    return ", ".join(str(word) for word in words) or "nothing"


def shown(value: object) -> str:
    """A value as it would stand in YAML, cut to a line."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
