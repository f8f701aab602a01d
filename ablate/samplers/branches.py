"""Conditional branches of a search space: axes that exist only where others have certain values.

    loss: {choice: [{name: normsoftmax}, {name: proxy_anchor}]}
    loss.temperature: {low: 0.02, high: 0.5, log: true, when: {loss.name: normsoftmax}}

An axis is active if every path in its `when` has one of the listed values. Such a path is another
active axis, or a part of one whose choices are mappings. Proposals hold active axes only.
"""

import graphlib
from collections.abc import Collection, Mapping
from typing import Any

from ablate.samplers.space import Space
from ablate.values.canonical import to_canonical_json
from ablate.values.errors import format_value, join_words, suggest_nearest
from ablate.values.paths import get_at, has_path
from trainables.errors import ConfigError


def find_parent(space: Space, path: str) -> str | None:
    """Return the axis that a path in a `when` refers to: itself, or the nearest one above it."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in space:
            return ".".join(parts[:length])
    return None


def find_parents(space: Space, path: str) -> list[str]:
    """Return the axes that an axis depends on by its `when`."""
    above = [find_parent(space, read) for read in space[path].when or {}]
    return [name for name in above if name is not None]


def order_axes(space: Space) -> list[str]:
    """Sort the axes so that each follows those it depends on, otherwise as written.

    Raises:
        ConfigError: The axes depend on each other in a cycle.
    """
    graph = {path: find_parents(space, path) for path in space}
    depth: dict[str, int] = {}
    try:
        for path in graphlib.TopologicalSorter(graph).static_order():
            depth[path] = 1 + max((depth[above] for above in graph[path]), default=-1)
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        message = f"the axes depend on each other ({' → '.join(cycle)}). Remove one `when`"
        raise ConfigError(f"space.{cycle[0]}.when", message) from None
    return sorted(space, key=lambda path: depth[path])


def is_active(space: Space, path: str, values: Mapping[str, Any]) -> bool:
    """Return whether an axis is active, given the values of the active axes before it."""
    return all(
        (above := find_parent(space, read)) in values
        and _is_match(_read_part(values[str(above)], str(above), read), wanted)
        for read, wanted in (space[path].when or {}).items()
    )


def drop_inactive(space: Space, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the active axes, in the order of the space."""
    active: dict[str, Any] = {}
    for path in order_axes(space):
        if is_active(space, path, active):
            active[path] = values[path]
    return {path: active[path] for path in space if path in active}


def find_proposal(space: Space, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a configuration as a proposal of the space; None if the space does not contain it."""
    absent = object()
    values = {path: get_at(config, path) if has_path(config, path) else absent for path in space}
    proposal = drop_inactive(space, values)
    return proposal if all(space[p].is_possible(value) for p, value in proposal.items()) else None


def build_example(space: Space, path: str) -> dict[str, Any]:
    """Return values of the axes that `path` depends on, with which it is active.

    Raises:
        StopIteration: No values make it active.
    """
    when = space[path].when or {}
    values: dict[str, Any] = {}
    for above in find_parents(space, path):
        values |= build_example(space, above)
    for above in find_parents(space, path):
        wanted = {
            read: condition for read, condition in when.items() if find_parent(space, read) == above
        }
        values[above] = next(
            value
            for value in space[above].list_samples()
            if all(_is_match(_read_part(value, above, read), wanted[read]) for read in wanted)
        )
    return values


def check_conditions(space: Space) -> None:
    """Check that each `when` refers to another axis, can hold, and makes no cycle.

    Raises:
        ConfigError: A `when` breaks one of these rules; the error has its path in the study.
    """
    for path, axis in space.items():
        for read, wanted in (axis.when or {}).items():
            field, above = f"space.{path}.when.{read}", find_parent(space, read)
            others = [other for other in space if other != path]
            if above is None or above == path:
                message = f"{read!r} is no other axis ({join_words(others)}), nor part of one"
                raise ConfigError(field, f"{message}. {suggest_nearest(read, others)}")
            samples = [_read_part(value, above, read) for value in space[above].list_samples()]
            if space[above].choice is not None:
                texts = list(map(to_canonical_json, samples))
                for value in list_wanted_values(wanted, texts):
                    if to_canonical_json(value) not in texts:
                        choices = join_words(map(format_value, samples))
                        message = f"{format_value(value)} is no choice of space.{above} ({choices})"
                        raise ConfigError(field, message)
    order_axes(space)
    for path in space:
        try:
            build_example(space, path)
        except StopIteration:
            message = (
                f"{format_value(space[path].when)} can never hold at once. Remove a condition."
            )
            raise ConfigError(f"space.{path}.when", message) from None


def list_wanted_values(wanted: Any, possible: Collection[str]) -> list[Any]:
    """Return the values of a condition or rule as a list; a single value may itself be a list.

    Args:
        wanted: one value, or a list of them.
        possible: all possible values, as canonical JSON.
    """
    is_value = not isinstance(wanted, list | tuple) or to_canonical_json(wanted) in possible
    return [wanted] if is_value else list(wanted)


def _is_match(value: Any, wanted: Any) -> bool:
    """Return whether a value is one of those that a condition names."""
    text = to_canonical_json(value)
    return text in map(to_canonical_json, list_wanted_values(wanted, [text]))


def _read_part(value: Any, above: str, read: str) -> Any:
    """Return the part of the value of axis `above` that the path `read` names, or None."""
    for part in read.removeprefix(above).strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value
