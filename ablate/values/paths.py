"""Convert between nested mappings and dotted paths, and look values up by path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainables.errors import ConfigError


def flatten_paths(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten a nested mapping to `{"optimizer.lr": 0.1, …}`; keep empty mappings and lists."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten_paths(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat


def expand_paths(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Expand dotted keys, at any depth, to nested mappings.

    Args:
        values: the mapping.
        where: its place, for messages.

    Raises:
        ConfigError: A path is set twice, or has both a value and paths below it, or a key is no
            text.
    """
    nested: dict[str, Any] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise ConfigError(
                _join_place(where, key), f"the key {key!r} is no text. Put it in quotes."
            )
        inner: Any = value
        if isinstance(value, Mapping):
            inner = expand_paths(value, _join_place(where, key))
        for part in reversed(key.split(".")[1:]):
            inner = {part: inner}
        _put_value(nested, key.split(".")[0], inner, where)
    return nested


def _put_value(nested: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set or merge a value in `nested`; refuse a second value for the same path."""
    if key not in nested:
        nested[key] = value
    elif isinstance(nested[key], dict) and isinstance(value, dict):
        for inner, below in value.items():
            _put_value(nested[key], inner, below, _join_place(where, key))
    else:
        raise ConfigError(_join_place(where, key), "it is given twice. Remove one of the two.")


def _join_place(where: str, key: object) -> str:
    return f"{where} {key}" if where == "--set" else f"{where}.{key}"


def get_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path.

    Raises:
        KeyError: There is no such path.
    """
    level: Any = values
    for part in path.split("."):
        if not isinstance(level, Mapping):
            raise KeyError(path)
        level = level[part]
    return level


def has_path(values: Mapping[str, Any], path: str) -> bool:
    try:
        get_at(values, path)
    except KeyError:
        return False
    return True


def find_varied_paths(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths whose value or presence differs between configurations."""
    flat = [flatten_paths(config) for config in configs]
    paths = dict.fromkeys(path for flat_config in flat for path in flat_config)
    return [
        path
        for path in paths
        if any(flat_config.get(path) != flat[0].get(path) for flat_config in flat)
    ]
