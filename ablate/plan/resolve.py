"""Layers → a trial's configuration; a fault names the layer at fault.

Here all losses and methods are loaded, and torch with them: a spec is read and checked without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ablate.values.errors import (
    REMOVED,
    REMOVED_KEYS,
    UNLIKE,
    closest,
    explain,
    fields_at,
    is_free,
    listed,
)
from ablate.values.layers import NAMED, Layer, Stack, merge, origin, overlay
from ablate.values.paths import has, leaves, lookup
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
        raise ConfigError(place, REMOVED, "a spec without it", REMOVED_KEYS[PACKED])
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
            remedy = suggest_path(".".join(path), merged)
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
            del options["name"]
            settings[f"{part}.{name}"] = leaves({part: options})
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
            remedy = suggest_path(path, data)
            raise ConfigError(place, f"the unknown path {path!r}", expected, remedy)
        free = is_free(fields[parts[length]].annotation)


# What is none of a trial, and what people call some of its fields.
OF_A_SPEC = ("name", "title", "extends", "seeds", "objective", "resources", "checkpoints")
CALLED = {"learning_rate": "lr", "wd": "weight_decay", "bs": "batch_size", "temp": "temperature"}


def suggest_path(path: str, data: Mapping[str, Any]) -> str:
    """Return a remedy for an unknown path of a trial: the one that is most like it.

    Args:
        data: partial trial, which tells the method and loss whose options count.
    """
    above, _, last = path.casefold().removeprefix("trial.").rpartition(".")
    last = CALLED.get(last, last)
    whole, known = f"{above}.{last}".lstrip("."), list(_paths((), data))
    if whole.partition(".")[0] in (*OF_A_SPEC, "datasets", "studies", "report"):
        option = ", or give --seeds" if whole == "seeds" else ""
        return f"{whole} is no field of a trial: change it in the spec{option}"
    same = [each for each in known if each.rpartition(".")[2].casefold() == last]
    near = whole if whole in known else closest(whole, same or known, 0.0 if same else 0.7)
    return UNLIKE if near is None else f"Did you mean {near!r}?"


def _paths(above: tuple[str, ...], data: Mapping[str, Any]) -> Iterator[str]:
    """Return the dotted paths of all fields below a path."""
    for name, info in fields_at(TrialConfig, above, data).items():
        here = (*above, info.alias or name)
        below = list(_paths(here, data))
        yield from below or [".".join(here)]
