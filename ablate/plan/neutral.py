"""The neutral configuration of a method, which equals the plain loss: a candidate of its tuning.

At the best rates of its baseline it is what the baseline is. A search that cannot find it may end
below the plain loss for no other reason than that it had more to search; ranked with the proposals,
it is the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from ablate.designs.parts import NEUTRAL
from ablate.values.layers import Layer, merge_layers
from trainables.errors import ConfigError
from trainables.methods.base import METHODS


def get_neutral_options(method: str) -> dict[str, Any]:
    """Return the options with which a method equals the plain loss; none of a method that has
    none."""
    return {
        key: value.model_dump(mode="json", exclude_unset=True)
        if isinstance(value, BaseModel)
        else value
        for key, value in METHODS[method].NEUTRAL.items()
    }


def build_neutral_layer(study: str, merged: Mapping[str, Any]) -> Layer:
    """Return what the neutral cell of a study sets over its centre.

    Raises:
        ConfigError: its method has no option that could be neutral.
    """
    method = str(_find_method_name(merged))
    values = get_neutral_options(method) if method in METHODS else {}
    field = f"studies.{study}.{NEUTRAL}"
    if not values:
        raise ConfigError(
            field,
            f"the method {method!r} has no terms that can be switched off: remove it from the "
            "baseline, and name the baseline in the method's own study",
        )
    return Layer(field, {"method": values})


def list_neutral_paths(config: Mapping[str, Any]) -> list[str]:
    """Return the paths that make a configuration neutral."""
    return [f"method.{key}" for key in get_neutral_options(config["method"]["name"])]


def is_neutral(config: Mapping[str, Any]) -> bool:
    """Return whether a resolved configuration's method equals the plain loss. The plain method is
    none that could be more."""
    method = config["method"]
    wanted = get_neutral_options(method["name"])
    return bool(wanted) and _is_contained(wanted, method)


def inherits_neutral(merged: Mapping[str, Any], bases: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether what a cell of these layers takes from one of its centres, by path, is neutral
    for its method. Layers that name no method are not told here."""
    method = _find_method_name(merged)
    wanted = get_neutral_options(method) if isinstance(method, str) and method in METHODS else {}
    return bool(wanted) and any(
        _is_contained(wanted, merge_layers([Layer("taken", values)]).get("method") or {})
        for values in bases
    )


def _find_method_name(merged: Mapping[str, Any]) -> object:
    """Return the name that layers give; what they have in its place, if that is no component."""
    part = merged.get("method") or {}
    return part.get("name", "plain") if isinstance(part, Mapping) else part


def _is_contained(part: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """None in `part` is also what is not in `options`: options that came later are off by it."""
    return all(
        isinstance(options.get(key), Mapping) and _is_contained(value, options[key])
        if isinstance(value, Mapping)
        else (key in options or value is None) and options.get(key) == value
        for key, value in part.items()
    )
