"""Levels of a factor as text: how they are told apart, and how a cell's name shows them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SHOWN = 60  # characters of a level in a cell's name


def canonical(value: object) -> str:
    """A level as text by which levels are told apart."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def cell_name(coords: Mapping[str, Any]) -> str:
    """`method.alpha=0.1,method.beta=1`: short and stable."""
    return ",".join(f"{key}={level_text(value)}" for key, value in coords.items())


def level_text(value: Any) -> str:
    """A level in a cell's name: text as it is, `proxy_anchor(alpha=16)` for a whole component,
    else JSON; what is too long ends in a digest, so that different levels differ."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        options = [f"{key}={level_text(v)}" for key, v in value.items() if key != "name"]
        text = str(value["name"]) + (f"({', '.join(options)})" if options else "")
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except ValueError:
            text = repr(value)
    if len(text) <= SHOWN:
        return text
    digest = hashlib.sha256(canonical(value).encode()).hexdigest()[:6]
    return f"{text[: SHOWN - 8]}…{digest}"
