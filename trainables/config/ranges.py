"""Search ranges of hyperparameters, each stated beside its field; `space: default` searches them.

    alpha: float = Field(1.0, ge=0, **log_range(1e-3, 3, "Fig. 4; public recipe 1"))

A range spans what the paper or the public code uses, and what was best on small data, with room to
either side. The text says where it is from.
"""

from typing import Any

from pydantic import BaseModel

from trainables.config.registry import FromRegistry

AXIS, SOURCE = "search", "search_source"  # keys in the JSON Schema of a field


def log_range(low: float, high: float, source: str, *, whole: bool = False) -> dict[str, Any]:
    """Return the arguments of `Field` for a range in which draws are uniform in the logarithm."""
    axis = {"low": low, "high": high, "log": True} | ({"int": True} if whole else {})
    return {"json_schema_extra": {AXIS: axis, SOURCE: source}}


def range_between(low: float, high: float, source: str) -> dict[str, Any]:
    """Return the arguments of `Field` for a range in which draws are uniform."""
    return {"json_schema_extra": {AXIS: {"low": low, "high": high}, SOURCE: source}}


def list_default_axes(config: type[BaseModel], above: str) -> dict[str, dict[str, Any]]:
    """Return the search ranges (axes) that the fields of a configuration state, by dotted path.

    Args:
        config: the configuration, with nested ones.
        above: path of the configuration in a trial, such as "method".
    """
    axes: dict[str, dict[str, Any]] = {}
    for name, info in config.model_fields.items():
        path, extra = f"{above}.{info.alias or name}", info.json_schema_extra
        if isinstance(extra, dict) and AXIS in extra:
            axes[path] = dict(extra[AXIS])  # type: ignore[arg-type]
        # leave out losses and methods, whose configurations state their ranges themselves
        inner = info.annotation
        is_component = any(isinstance(mark, FromRegistry) for mark in info.metadata)
        if isinstance(inner, type) and issubclass(inner, BaseModel) and not is_component:
            axes |= list_default_axes(inner, path)
    return axes
