"""Where pydantic would be lenient and a sweep must not be: `seeds: true` is not one seed."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, model_validator

from trainables.errors import ConfigError


class Strict(BaseModel):
    """Base of what a spec is made of: no field of numbers takes true or false."""

    @model_validator(mode="before")
    @classmethod
    def refuse_booleans_for_numbers(cls, data: Any) -> Any:
        """Refuse booleans for numbers: `epochs: true` would be 1."""
        for key, value in data.items() if isinstance(data, dict) else ():
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(each, bool) for each in values) and key in _list_numeric_fields(cls):
                word = str(value).lower() if isinstance(value, bool) else "true or false in it"
                raise ConfigError(str(key), f"it must be a number, not {word}: write it in digits")
        return data


@cache
def _list_numeric_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that hold numbers, and nothing that a truth value could be meant as."""
    leaves = {
        info.alias or name: set(_iterate_leaf_types(info))
        for name, info in model.model_fields.items()
    }
    return frozenset(
        name for name, kinds in leaves.items() if kinds & {int, float} and not kinds & {bool, Any}
    )


def _iterate_leaf_types(info: Any) -> list[Any]:
    annotation = getattr(info, "annotation", info)
    inner = get_args(annotation)
    return [leaf for arg in inner for leaf in _iterate_leaf_types(arg)] if inner else [annotation]
