"""Build the neutral configuration of a method, which equals the plain loss.

At the best rates of its baseline, the neutral cell equals the baseline. Ranked with the proposals
of a search, it is the lower bound of what tuning can find; without it a method may end below the
plain loss only because it had more to search.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from ablate.designs.layers import Layer, merge_layers
from ablate.designs.parts import NEUTRAL
from trainables.methods.base import METHODS
from trainables.words.errors import ConfigError


def get_neutral_options(method: str) -> dict[str, Any]:
    """Return the options that switch a method off, so that it equals the plain loss; {} if none."""
    return {
        key: value.model_dump(mode="json", exclude_unset=True)
        if isinstance(value, BaseModel)
        else value
        for key, value in METHODS[method].NEUTRAL.items()
    }


def build_neutral_layer(study: str, merged: Mapping[str, Any]) -> Layer:
    """Return the layer that switches a study's method off, which makes the study's neutral cell.

    Raises:
        ConfigError: the method has no neutral options.
    """
    method = str(_find_method_name(merged))
    values = get_neutral_options(method) if method in METHODS else {}
    field = f"studies.{study}.{NEUTRAL}"
    if not values:
        raise ConfigError(
            field,
            f"the method {method!r} has no terms that can be switched off",
            f"Remove `{NEUTRAL}` here, and name the baseline in the method's own study",
        )
    return Layer(field, {"method": values})


def is_neutral(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration has a method that is switched off; False for plain."""
    method = config["method"]
    wanted = get_neutral_options(method["name"])
    return bool(wanted) and _is_contained(wanted, method)


def inherits_neutral(merged: Mapping[str, Any], bases: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a cell takes values from another cell, in which its method is switched off.

    Args:
        merged: the cell's settings.
        bases: for each other cell, the values that are taken, by path.
    """
    method = _find_method_name(merged)
    wanted = get_neutral_options(method) if isinstance(method, str) and method in METHODS else {}
    return bool(wanted) and any(
        _is_contained(wanted, merge_layers([Layer("taken", values)]).get("method") or {})
        for values in bases
    )


def _find_method_name(merged: Mapping[str, Any]) -> object:
    """Return the method's name in merged layers, or what they have in its place."""
    part = merged.get("method") or {}
    return part.get("name", "plain") if isinstance(part, Mapping) else part


def _is_contained(part: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether `options` have all values of `part`; a missing option counts as None."""
    return all(
        isinstance(options.get(key), Mapping) and _is_contained(value, options[key])
        if isinstance(value, Mapping)
        else options.get(key) == value
        for key, value in part.items()
    )
