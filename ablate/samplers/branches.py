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
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError
from trainables.words.messages import format_value, join_words, suggest_nearest
from trainables.words.paths import get_at, has_path


def find_parent(space: Space, path: str) -> str | None:
    """Return the path or its longest prefix that is an axis; None if neither is an axis."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in space:
            return ".".join(parts[:length])
    return None


def find_parents(space: Space, path: str) -> list[str]:
    """Return the axes that an axis depends on by its `when`."""
    parents = [find_parent(space, read_path) for read_path in space[path].when or {}]
    return [name for name in parents if name is not None]


def order_axes(space: Space) -> list[str]:
    """Sort the axes so that each follows the axes that it depends on, otherwise as written."""
    graph = {path: find_parents(space, path) for path in space}
    depth: dict[str, int] = {}  # axis → length of the longest chain of axes that it depends on
    try:
        for path in graphlib.TopologicalSorter(graph).static_order():
            depth[path] = 1 + max((depth[above] for above in graph[path]), default=-1)
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        raise ConfigError(
            f"space.{cycle[0]}.when",
            f"the axes depend on each other ({' → '.join(cycle)})",
            "Remove a `when`",
        ) from None
    return sorted(space, key=lambda path: depth[path])


def is_active(space: Space, path: str, values: Mapping[str, Any]) -> bool:
    """Return whether all conditions in an axis's `when` hold, given values of earlier axes."""
    for read_path, wanted in (space[path].when or {}).items():
        parent = find_parent(space, read_path)
        if parent is None or parent not in values:
            return False
        if not _is_match(_read_part(values[parent], parent, read_path), wanted):
            return False
    return True


def drop_inactive(space: Space, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without those of inactive axes, in the order of the space."""
    active: dict[str, Any] = {}
    for path in order_axes(space):
        if is_active(space, path, active):
            active[path] = values[path]
    return {path: active[path] for path in space if path in active}


def find_proposal(space: Space, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a configuration's values of the active axes; None if the space excludes a value."""
    absent = object()  # no axis can have this value
    values = {path: get_at(config, path) if has_path(config, path) else absent for path in space}
    proposal = drop_inactive(space, values)
    return proposal if all(space[p].is_possible(value) for p, value in proposal.items()) else None


def build_example(space: Space, path: str) -> dict[str, Any]:
    """Return values that make the axis `path` active, or raise StopIteration if none do."""
    when, parents = space[path].when or {}, find_parents(space, path)
    values: dict[str, Any] = {}
    for parent in parents:
        values |= build_example(space, parent)
    # choose for each parent the first value that meets all conditions on it
    for parent in parents:
        wanted = {key: when[key] for key in when if find_parent(space, key) == parent}
        values[parent] = next(
            value
            for value in space[parent].list_samples()
            if all(_is_match(_read_part(value, parent, key), wanted[key]) for key in wanted)
        )
    return values


def check_conditions(space: Space) -> None:
    """Check that each `when` refers to another axis, can hold, and makes no cycle."""
    for path, axis in space.items():
        for read_path, wanted in (axis.when or {}).items():
            # check that the path names another axis, or a part of one
            field, parent = f"space.{path}.when.{read_path}", find_parent(space, read_path)
            others = [other for other in space if other != path]
            if parent is None or parent == path:
                raise ConfigError(
                    field,
                    f"{read_path!r} names no other axis ({join_words(others)}) or part of one",
                    suggest_nearest(read_path, others),
                )
            # check that each wanted value is a choice of that axis
            if space[parent].choice is not None:
                choices = space[parent].list_samples()
                samples = [_read_part(value, parent, read_path) for value in choices]
                texts = list(map(to_canonical_json, samples))
                for value in list_wanted_values(wanted, texts):
                    if to_canonical_json(value) not in texts:
                        raise ConfigError(
                            field,
                            f"{format_value(value)} is no choice of the axis space.{parent}",
                            f"Choose one of {join_words(map(format_value, samples))}",
                        )
    order_axes(space)  # raises if there is a cycle
    for path in space:
        try:
            build_example(space, path)
        except StopIteration:
            conditions = format_value(space[path].when)
            raise ConfigError(
                f"space.{path}.when",
                f"the conditions {conditions} can never hold at once",
                "Remove one condition",
            ) from None


def list_wanted_values(wanted: Any, possible: Collection[str]) -> list[Any]:
    """Return `wanted`, one value or a list of values, as a list of values.

    A list is one value if it is among the `possible` ones, which are given as canonical JSON.
    """
    is_value = not isinstance(wanted, list | tuple) or to_canonical_json(wanted) in possible
    return [wanted] if is_value else list(wanted)


def _is_match(value: Any, wanted: Any) -> bool:
    """Return whether a value is one of those that a condition names."""
    text = to_canonical_json(value)
    return text in map(to_canonical_json, list_wanted_values(wanted, [text]))


def _read_part(value: Any, axis_path: str, read_path: str) -> Any:
    """Return the part of an axis's value at `read_path`, a path at or below the axis, or None."""
    for part in read_path.removeprefix(axis_path).strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value
