"""What all parts of a recipe share. Imports nothing but pydantic, so that a plan stays quick."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class RecipePart(BaseModel):
    """Strict about unknown keys; never changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def level_name(value: Any) -> Any:
    """`on` and `off` as text: YAML reads the bare words as booleans."""
    if value is True:
        return "on"
    if value is False:
        return "off"
    return value
