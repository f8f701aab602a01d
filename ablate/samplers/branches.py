"""Conditional branches of a search space: axes that exist only where others have certain values.

    loss: {choice: [{name: normsoftmax}, {name: proxy_anchor}]}
    loss.temperature: {low: 0.02, high: 0.5, log: true, when: {loss.name: normsoftmax}}

An axis is active where every path in its `when` has one of the listed values; the path is another
axis, itself active, or a part of one whose choices are mappings. Proposals hold active axes only.
"""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Mapping
from typing import Any

from ablate.samplers.space import Space
from ablate.values.canonical import to_canonical_json
from ablate.values.errors import format_value, join_words, suggest_nearest
from ablate.values.paths import get_at, has_path
from trainables.errors import ConfigError


def find_parent(space: Space, path: str) -> str | None:
    """Return the axis that a path of a `when` reads: itself, or the nearest one above it."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in space:
            return ".".join(parts[:length])
    return None


def find_parents(space: Space, path: str) -> list[str]:
    above = [find_parent(space, read) for read in space[path].when or {}]
    return [name for name in above if name is not None]


def order_axes(space: Space) -> list[str]:
    """Return axes with each after those it depends on, else as written.

    Raises:
        ConfigError: a cycle.
    """
    graph = {path: find_parents(space, path) for path in space}
    depth: dict[str, int] = {}
    try:
        for path in graphlib.TopologicalSorter(graph).static_order():
            depth[path] = 1 + max((depth[above] for above in graph[path]), default=-1)
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        sentence = f"the axes wait for each other ({' → '.join(cycle)}): remove one `when`"
        raise ConfigError(f"space.{cycle[0]}.when", sentence) from None
    return sorted(space, key=lambda path: depth[path])


def is_active(space: Space, path: str, values: Mapping[str, Any]) -> bool:
    """Return whether an axis exists, given the values of the active axes before it."""
    return all(
        (above := find_parent(space, read)) in values
        and _is_match(_read_part(values[str(above)], str(above), read), wanted)
        for read, wanted in (space[path].when or {}).items()
    )


def drop_inactive(space: Space, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of all axes without those that do not exist, in the order of the space."""
    existing: dict[str, Any] = {}
    for path in order_axes(space):
        if is_active(space, path, existing):
            existing[path] = values[path]
    return {path: existing[path] for path in space if path in existing}


def find_proposal(space: Space, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the proposal that a configuration would be; None where the space does not hold it."""
    absent = object()
    values = {path: get_at(config, path) if has_path(config, path) else absent for path in space}
    proposal = drop_inactive(space, values)
    return proposal if all(space[p].is_possible(value) for p, value in proposal.items()) else None


def build_example(space: Space, path: str) -> dict[str, Any]:
    """Return values of the axes above `path` under which it exists.

    Raises:
        StopIteration: there are none.
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
    """Raise for a `when` that reads no axis, waits in a circle, or never holds.

    Raises:
        ConfigError: its path is the place in the study.
    """
    for path, axis in space.items():
        for read, wanted in (axis.when or {}).items():
            field, above = f"space.{path}.when.{read}", find_parent(space, read)
            others = [other for other in space if other != path]
            if above is None or above == path:
                sentence = f"{read!r} is no other axis ({join_words(others)}), nor part of one"
                raise ConfigError(field, f"{sentence}. {suggest_nearest(read, others)}")
            samples = [_read_part(value, above, read) for value in space[above].list_samples()]
            if space[above].choice is not None:
                texts = list(map(to_canonical_json, samples))
                for value in list_wanted_values(wanted, texts):
                    if to_canonical_json(value) not in texts:
                        choices = join_words(map(format_value, samples))
                        sentence = (
                            f"{format_value(value)} is no choice of space.{above} ({choices})"
                        )
                        raise ConfigError(field, sentence)
    order_axes(space)
    for path in space:
        try:
            build_example(space, path)
        except StopIteration:
            sentence = (
                f"{format_value(space[path].when)} can never hold at once: remove a condition"
            )
            raise ConfigError(f"space.{path}.when", sentence) from None


def list_wanted_values(wanted: Any, possible: Collection[str]) -> list[Any]:
    """Return the values that a condition or a rule names: one, or a list; a value may be a list.

    Args:
        possible: all possible values, as canonical JSON.
    """
    is_value = not isinstance(wanted, list | tuple) or to_canonical_json(wanted) in possible
    return [wanted] if is_value else list(wanted)


def _is_match(value: Any, wanted: Any) -> bool:
    text = to_canonical_json(value)
    return text in map(to_canonical_json, list_wanted_values(wanted, [text]))


def _read_part(value: Any, above: str, read: str) -> Any:
    """Return the part of an axis's value that a path reads; None if it has none."""
    for part in read.removeprefix(above).strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value
