"""A trial's configuration from layers: later ones win, and a fault names the layer at fault.

A layer is a partial TrialConfig as nested mappings; keys may be dotted paths
(`optimizer.lr: 0.1`). Where a layer names another method or loss than the layers before it, the
options of the earlier one are dropped with it: they belong to that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from ablate.messages import explain, fields_at, is_free
from ablate.nested import expand, has
from ablate.paths import meant
from ablate.remedies import UNLIKE
from ablate.wording import listed
from trainables.config import TrialConfig
from trainables.errors import ConfigError
from trainables.registry import FromRegistry

Locate = Callable[[str], str]  # dotted place in the spec → the same with file and line

MISFIT = "values that do not fit together"  # each of which is fine
NAMED = frozenset(
    name
    for name, info in TrialConfig.model_fields.items()
    if any(isinstance(mark, FromRegistry) for mark in info.metadata)
)


@dataclass(frozen=True)
class Layer:
    """`where` is the dotted place of the values in the spec, or an option as `--set`."""

    where: str
    values: Mapping[str, Any]

    def place(self, path: str) -> str:
        return f"{self.where} {path}" if self.where.startswith("-") else f"{self.where}.{path}"


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge of nested mappings; lists and scalars of `top` replace those of `base`.

    Options given before any name (a temperature taken from a tuned study, then the loss it
    belongs to) stay: if they do not fit the name that comes, that is an error, not a loss.
    """
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            merged[key] = value
        elif key in NAMED and "name" in old and value.get("name", old["name"]) != old["name"]:
            merged[key] = dict(value)
        else:
            merged[key] = overlay(old, value)
    return merged


def merge(layers: Iterable[Layer]) -> dict[str, Any]:
    return Stack(layers).merged


class Stack(tuple[Layer, ...]):
    """Layers, lowest first, that are merged once, however often they are asked for."""

    _below: Stack | None = None

    def over(self, layers: Iterable[Layer]) -> Stack:
        """These with others over them: what is below is not merged anew."""
        made = Stack((*self, *layers))
        made._below = self
        return made

    @cached_property
    def merged(self) -> dict[str, Any]:
        """As one nested mapping; shared, so nobody may change it."""
        merged, known = ({}, 0) if self._below is None else (self._below.merged, len(self._below))
        for layer in self[known:]:
            merged = overlay(merged, expand(layer.values, layer.where))
        return merged


def resolve(layers: Stack, locate: Locate) -> TrialConfig:
    """The validated configuration of these layers.

    Raises:
        ConfigError: its path is the place in the spec of the layer that holds the fault.
    """
    merged = layers.merged
    try:
        return TrialConfig.model_validate(merged)
    except ValidationError as error:
        path, fault = explain(error, TrialConfig, merged)
        if not path:  # a rule between parts, each of which is fine
            place = locate(_breaking(layers, fault.expected))
            raise ConfigError(place, MISFIT, fault.expected, fault.remedy) from None
        place = locate(origin(layers, ".".join(path), fault.path))
        remedy = fault.remedy
        if remedy == UNLIKE:  # nothing at that level: a key that belongs elsewhere
            remedy = meant(".".join(path), len(path) - 1, path[-1:], merged)
        raise ConfigError(place, fault.found, fault.expected, remedy) from None


def _breaking(layers: Sequence[Layer], rule: str) -> str:
    """The place of the layer with which a rule between parts is broken: the first after which
    the same rule is broken as after all."""
    for count, layer in enumerate(layers, 1):
        merged = merge(layers[:count])
        try:
            TrialConfig.model_validate(merged)
        except ValidationError as error:
            if explain(error, TrialConfig, merged)[1].expected == rule:
                return layer.where
    return "trial"


def origin(layers: Sequence[Layer], path: str, reported: str) -> str:
    """The place of the last layer that holds `path`, or the nearest thing above it."""
    parts = path.split(".") if path else []
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for layer in reversed(layers):
            if has(expand(layer.values, layer.where), prefix):
                return layer.place(reported or path)
    return layers[-1].place(reported) if reported and layers else (reported or "trial")


def check_path(path: str, merged: Mapping[str, Any], place: str) -> None:
    """That `path` names a field of TrialConfig, for the method and loss of `merged`.

    Raises:
        ConfigError: no such field, with the close matches of that level.
    """
    parts = path.split(".")
    complete = {"loss": {"name": "proxy_anchor"}, "method": {"name": "plain"}}
    data = overlay(complete, merged)
    free = False  # whether the keys here are the user's own: options of another library's class
    for length in range(len(parts)):
        fields = {i.alias or n: i for n, i in fields_at(TrialConfig, parts[:length], data).items()}
        names = list(fields)
        if free and length == len(parts) - 1:
            return
        if parts[length] not in names:
            level = ".".join(parts[: length + free])
            kind = f"a field of {level}" if level else "a field of a trial"
            named = data.get(parts[0])
            if parts[0] in NAMED and length == 1 and isinstance(named, Mapping):
                kind += f" ({named.get('name')})"
            expected = f"{kind}: {listed(names)}" if names else f"nothing below {level}"
            told = meant(path, length, names, data)
            raise ConfigError(place, f"the unknown path {path!r}", expected, told)
        free = is_free(fields[parts[length]].annotation)
