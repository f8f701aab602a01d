"""Layers → a trial's configuration; a fault names the layer at fault.

Here all losses and methods are loaded, and torch with them: a spec is read and checked without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ablate.values.fields import meant
from ablate.values.layers import NAMED, Layer, Stack, merge, origin, overlay
from ablate.values.paths import has, leaves, lookup
from ablate.values.remedies import UNLIKE
from ablate.values.removed import KEYS, REMOVED
from ablate.values.validation import explain, fields_at, is_free
from ablate.values.wording import listed
from trainables.data.dataset import DATASETS
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

Locate = Callable[[str], str]  # dotted place in the spec → the same with file and line

# A field that trials of before have, so that they can be read; `TrialConfig` takes it therefore.
PACKED = "training.packed"
MISFIT = "values that do not fit together"  # each of which is fine


def resolve(layers: Stack, locate: Locate) -> TrialConfig:
    """The validated configuration of these layers.

    Raises:
        ConfigError: its path is the place in the spec of the layer that holds the fault.
    """
    merged = layers.merged
    if has(merged, PACKED) and lookup(merged, PACKED) is not None:
        place = locate(origin(layers, PACKED, PACKED))
        raise ConfigError(place, REMOVED, "a spec without it", KEYS[PACKED])
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


def default_settings() -> dict[str, dict[str, Any]]:
    """Return the defaults of all settings by dotted path.

    Returns:
        Under "" those of every trial, and under "loss.NAME", "method.NAME" and "data.NAME" the
        options of each component.
    """
    settings = {"": leaves(TrialConfig.model_construct().model_dump(mode="json"))}
    for part, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        for name in registry:
            options = registry[name].Config.model_construct(name=name).model_dump(mode="json")
            own = leaves({part: options})
            settings[f"{part}.{name}"] = {
                path: value for path, value in own.items() if path != f"{part}.name"
            }
    return settings


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
            hint = meant(path, length, names, data)
            raise ConfigError(place, f"the unknown path {path!r}", expected, hint)
        free = is_free(fields[parts[length]].annotation)
