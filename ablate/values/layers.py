"""Layers of a trial's configuration: later ones win.

A layer is a partial TrialConfig as nested mappings; keys may be dotted paths
(`optimizer.lr: 0.1`). Where a layer names another method or loss than the layers before it, the
options of the earlier one are dropped with it: they belong to that name. Another data set keeps
what all have (size, split, augmentation), but for the folder: that is of the earlier one. Whether
what comes of them is a trial is asked in `ablate/plan/resolve.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ablate.values.paths import expand_paths, has_path
from trainables.config.images import EMBEDDED, DataConfig
from trainables.config.registry import NamedConfig
from trainables.config.sections import Trial

# Loss and method, of which a trial's configuration holds one each, told by `name`.
NAMED = frozenset(
    name for name, info in Trial.model_fields.items() if info.annotation is NamedConfig
)


@dataclass(frozen=True)
class Layer:
    """`where` is the dotted place of the values in the spec, or an option as `--set`."""

    where: str
    values: Mapping[str, Any]

    def format_place(self, path: str) -> str:
        return f"{self.where} {path}" if self.where.startswith("-") else f"{self.where}.{path}"


def overlay_mappings(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings deeply; lists and scalars of `top` replace those of `base`.

    Options given before any name (a temperature taken from a tuned study, then the loss it
    belongs to) stay: if they do not fit the name that comes, that is an error, not a loss.
    """
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            merged[key] = value
            continue
        renamed = "name" in old and value.get("name", old["name"]) != old["name"]
        if renamed and key in NAMED:
            old = {}
        elif renamed and key == "data":
            # The embedded data sets look at no folder; they keep its path, which the ids of sweeps
            # hold since they were alone with class folders.
            dropped = {"root"} if value["name"] not in EMBEDDED else set()
            shared = DataConfig.model_fields.keys() - dropped
            old = {option: setting for option, setting in old.items() if option in shared}
        merged[key] = overlay_mappings(old, value)
    return merged


class Stack(tuple[Layer, ...]):
    """Layers, lowest first."""

    @cached_property
    def merged(self) -> dict[str, Any]:
        """All of them as one nested mapping; shared, so nobody may change it."""
        merged: dict[str, Any] = {}
        for layer in self:
            merged = overlay_mappings(merged, expand_paths(layer.values, layer.where))
        return merged


def merge_layers(layers: Iterable[Layer]) -> dict[str, Any]:
    return Stack(layers).merged


def find_origin(layers: Sequence[Layer], path: str, reported: str) -> str:
    """Return the place of the last layer that holds `path`, or the nearest thing above it."""
    parts = path.split(".") if path else []
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for layer in reversed(layers):
            if has_path(expand_paths(layer.values, layer.where), prefix):
                return layer.format_place(reported or path)
    return layers[-1].format_place(reported) if reported and layers else (reported or "trial")
