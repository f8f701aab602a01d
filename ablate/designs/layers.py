"""Merge layers of a trial's configuration; later layers win.

A layer is a partial TrialConfig as nested mappings, whose keys may be dotted paths
(`optimizer.lr: 0.1`). If a layer names another method or loss, the options of the earlier one are
dropped. If it names another data set, the shared options (size, split, augmentation) stay, except
for the folder. `ablate/plan/resolve.py` validates the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainables.config.images import EMBEDDED, DataConfig
from trainables.config.registry import NamedConfig
from trainables.config.sections import Trial
from trainables.words.paths import expand_paths, has_path, join_address

# The sections that hold one component each, chosen by `name`: loss and method.
NAMED = frozenset(
    name for name, info in Trial.model_fields.items() if info.annotation is NamedConfig
)


@dataclass(frozen=True)
class Layer:
    """A partial configuration and its origin.

    Attributes:
        where: dotted address of the values in the spec, or an option such as `--set`.
        values: the settings; keys may be dotted paths.
    """

    where: str
    values: Mapping[str, Any]


def overlay_mappings(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings deeply; lists and scalars of `top` replace those of `base`.

    Where `top` names another method, loss or data set, options of the former one are dropped.
    Options of a component that has no name yet stay, for example a tuned temperature below the
    layer that names its loss; validation later reports options that do not fit the name.
    """
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            merged[key] = value
            continue
        is_renamed = "name" in old and value.get("name", old["name"]) != old["name"]
        if is_renamed and key in NAMED:  # another loss or method: no option of the old one fits
            old = {}
        elif is_renamed and key == "data":  # another data set: the shared options stay
            # `root` stays for data sets that do not read it: it is in existing sweeps' identities
            dropped = {"root"} if value["name"] not in EMBEDDED else set()
            shared = DataConfig.model_fields.keys() - dropped
            old = {option: setting for option, setting in old.items() if option in shared}
        merged[key] = overlay_mappings(old, value)
    return merged


class Stack(tuple[Layer, ...]):
    """Layers, lowest first."""

    @cached_property
    def merged(self) -> dict[str, Any]:
        """All layers as one nested mapping. It is cached, so callers must not change it."""
        merged: dict[str, Any] = {}
        for layer in self:
            merged = overlay_mappings(merged, expand_paths(layer.values, layer.where))
        return merged


def merge_layers(layers: Iterable[Layer]) -> dict[str, Any]:
    """Merge layers, lowest first, into one nested mapping."""
    return Stack(layers).merged


def find_origin(layers: Sequence[Layer], path: str, reported: str) -> str:
    """Return the address, for messages, of `path` in the last layer that sets it or a parent.

    Args:
        layers: lowest first.
        reported: the path that the address ends with; "" stands for `path`.

    Returns:
        If no layer sets the path: "trial" if `reported` is empty, else its place in the last layer.
    """
    parts = path.split(".") if path else []
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for layer in reversed(layers):
            if has_path(expand_paths(layer.values, layer.where), prefix):
                return join_address(layer.where, reported or path)
    if not reported:
        return "trial"
    return join_address(layers[-1].where, reported) if layers else reported
