"""Convert between nested mappings and dotted paths, and look values up by path."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainables.words.errors import ConfigError


def flatten_paths(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested mappings to `{"optimizer.lr": 0.1, …}`; keep empty mappings and lists.

    `above` is put before each path; the recursion passes the keys above `values`, with a dot.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten_paths(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat


def expand_paths(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Expand dotted keys at any depth: `{"a.b": 1}` becomes `{"a": {"b": 1}}`.

    Args:
        where: the address of the mapping in the spec, or an option such as `--set`, for messages.

    Raises:
        ConfigError: a path is set twice or has a value and paths below it, or a key is no text.
    """
    nested: dict[str, Any] = {}
    for key, value in values.items():
        address = join_address(where, key)
        if not isinstance(key, str):
            raise ConfigError(address, f"the key {key!r} is no text", "Put the key in quotes")
        first, *others = key.split(".")
        inner: Any = expand_paths(value, address) if isinstance(value, Mapping) else value
        for part in reversed(others):
            inner = {part: inner}
        _merge_value(nested, first, inner, where)
    return nested


def _merge_value(nested: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set `nested[key]`, or merge two mappings there; refuse a second value for the same path."""
    if key not in nested:
        nested[key] = value
    elif isinstance(nested[key], dict) and isinstance(value, dict):
        for inner_key, inner_value in value.items():
            _merge_value(nested[key], inner_key, inner_value, join_address(where, key))
    else:
        raise ConfigError(
            join_address(where, key), "this path is given twice", "Remove one of them"
        )


def join_address(where: str, path: object) -> str:
    """Return the address of a path, for messages: `trial.optimizer.lr` or `--set optimizer.lr`."""
    return f"{where} {path}" if where.startswith("-") else f"{where}.{path}"


def get_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, which must exist (`has_path`)."""
    level: Any = values
    for part in path.split("."):
        level = level[part]
    return level


def find_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None if there is none."""
    return get_at(values, path) if has_path(values, path) else None


def has_path(values: Mapping[str, Any], path: str) -> bool:
    """Return whether nested mappings have a value at a dotted path."""
    level: Any = values
    for part in path.split("."):
        if not isinstance(level, Mapping) or part not in level:
            return False
        level = level[part]
    return True


def is_path_within(path: str, *others: str) -> bool:
    """Return whether a path equals one of the other paths or is below one of them."""
    return any(path == other or path.startswith(f"{other}.") for other in others)


def find_varied_paths(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the dotted paths whose value or presence differs between configurations."""
    flat_configs = [flatten_paths(config) for config in configs]
    paths = dict.fromkeys(path for flat_config in flat_configs for path in flat_config)
    return [
        path
        for path in paths
        if any(flat_config.get(path) != flat_configs[0].get(path) for flat_config in flat_configs)
    ]
