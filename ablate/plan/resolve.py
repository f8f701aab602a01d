"""Resolve layers to a trial's configuration; an error names the layer at fault.

This loads all losses and methods, and torch. Reading a spec does not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from ablate.designs.layers import NAMED, Layer, Stack, find_origin, merge_layers, overlay_mappings
from ablate.spec.validation import explain_validation_error, is_free, list_fields_at
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError
from trainables.words.messages import find_closest, join_words
from trainables.words.paths import flatten_paths

Locate = Callable[[str], str]  # dotted place in the spec → the same with file and line


class MisfitError(ConfigError):
    """Values that are valid alone and do not fit together."""


def resolve_layers(layers: Stack, locate: Locate) -> TrialConfig:
    """Merge layers of settings, and return the validated configuration of a trial.

    Raises:
        ConfigError: a value is invalid; its path is the place of the layer in the spec.
    """
    merged = layers.merged
    try:
        return TrialConfig.model_validate(merged)
    except ValidationError as error:
        suggest = partial(suggest_path, data=merged)
        path, fault = explain_validation_error(error, TrialConfig, merged, suggest)
        if path:
            location = locate(find_origin(layers, ".".join(path), fault.path))
            raise fault.move_to(location) from None
        # a rule between parts, each of which is fine
        location = locate(_find_conflicting_layer(layers, fault.message))
        raise MisfitError(location, fault.fault, fault.remedy) from None


def list_default_settings() -> dict[str, dict[str, Any]]:
    """Return the defaults of all settings: section → dotted path → value.

    The section "" has the settings of every trial; "loss.NAME", "method.NAME" and "data.NAME" have
    the options of a component.
    """
    settings = {"": flatten_paths(TrialConfig.model_construct().model_dump(mode="json"))}
    for part, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        for name in registry:
            options = registry[name].Config.model_construct(name=name).model_dump(mode="json")
            del options["name"]
            settings[f"{part}.{name}"] = flatten_paths({part: options})
    return settings


def _find_conflicting_layer(layers: Sequence[Layer], rule: str) -> str:
    """Return the place of the lowest layer that, laid over those below, breaks a rule of a trial.

    Args:
        rule: the message of the error.
    """
    for count, layer in enumerate(layers, 1):
        merged = merge_layers(layers[:count])
        try:
            TrialConfig.model_validate(merged)
        except ValidationError as error:
            if explain_validation_error(error, TrialConfig, merged)[1].message == rule:
                return layer.where
    return "trial"


def check_path(path: str, merged: Mapping[str, Any], location: str) -> None:
    """Check that `path` names a field of a trial with the method and loss of `merged`.

    Raises:
        ConfigError: there is no such field; the message suggests similar ones.
    """
    parts = path.split(".")
    data = overlay_mappings({"loss": {"name": "proxy_anchor"}, "method": {"name": "plain"}}, merged)
    is_free_form = False  # whether any key is allowed: options of another library's class
    for length, part in enumerate(parts):
        infos = list_fields_at(TrialConfig, parts[:length], data)
        fields = {info.alias or name: info for name, info in infos.items()}
        if is_free_form and length == len(parts) - 1:
            return
        if part not in fields:
            # a key of a free-form field is never unknown itself, but it has nothing below it
            level = ".".join(parts[: length + is_free_form]) or "a trial"
            component = data.get(parts[0])
            if parts[0] in NAMED and length == 1 and isinstance(component, Mapping):
                level += f" ({component.get('name')})"
            choices = f"the fields of {level} are {join_words(fields)}"
            choices = choices if fields else f"{level} has nothing below it"
            raise ConfigError(
                location, f"the path {path!r} is unknown; {choices}", suggest_path(path, data)
            )
        is_free_form = is_free(fields[part].annotation)


# Fields of a spec that are none of a trial, and other names of some of a trial's fields.
SPEC_FIELDS = ("name", "title", "extends", "seeds", "objective", "resources", "checkpoints")
ALIASES = {"learning_rate": "lr", "wd": "weight_decay", "bs": "batch_size", "temp": "temperature"}


def suggest_path(path: str, data: Mapping[str, Any]) -> str:
    """Return a remedy for an unknown path, which names the most similar known path if there is one.

    Args:
        data: a partial trial, whose method and loss decide which options exist.
    """
    above, _, last = path.casefold().removeprefix("trial.").rpartition(".")
    last = ALIASES.get(last, last)
    full_path, paths = f"{above}.{last}".lstrip("."), list(_list_paths((), data))
    if full_path.partition(".")[0] in (*SPEC_FIELDS, "datasets", "studies", "report"):
        option = ", or give --seeds" if full_path == "seeds" else ""
        return f"{full_path} is no field of a trial: change it in the spec{option}"
    # among paths that end alike, the nearest whatever its similarity; else only a similar one
    alike = [candidate for candidate in paths if candidate.rpartition(".")[2].casefold() == last]
    near = find_closest(full_path, alike or paths, 0.0 if alike else 0.7)
    near = full_path if full_path in paths else near
    return "Choose a known path" if near is None else f"Did you mean {near!r}?"


def _list_paths(above: tuple[str, ...], data: Mapping[str, Any]) -> Iterator[str]:
    for name, info in list_fields_at(TrialConfig, above, data).items():
        path_parts = (*above, info.alias or name)
        yield from list(_list_paths(path_parts, data)) or [".".join(path_parts)]
