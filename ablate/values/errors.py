"""Faults of input, each one line: its place, what was found, what was expected, the remedy.

Pydantic finds them, and mostly says what it expected; what it says of Python is said of YAML here.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from trainables.config.registry import FromRegistry
from trainables.errors import ConfigError

VERSION = "0.2.0"
REMOVED = f"a key that was removed in {VERSION}"
# The end of a key's path → what to do instead.
REMOVED_KEYS = {
    "resources.priority": "Leave it out: sweeps that share a cluster take the slots that are free",
    "training.packed": "Leave it out: each trial trains alone",
}
UNLIKE = "Choose one of those"  # where nothing known is like what was found
AXES = ("space", "grid", "factors", "components", "variants")  # what a study varies, by design
_TAGS = ("design", "name")  # the fields by which the members of unions are told

# Kind of pydantic's fault → what was expected, and the remedy, in words of YAML.
_MAPPING = "a mapping (key: value)", "Write `key: value` on lines below it, indented"
_LIST = "a list ([a, b])", "Write [a, b], or entries that begin with `- ` on lines of their own"
_BOOL = "true or false", "Write the word without quotes"
_IN_YAML = {
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "bool_type": _BOOL,
    "bool_parsing": _BOOL,
    "invalid_key": ("text for a key", "Put it in quotes"),
    "string_type": ("text (a number or a word of YAML needs quotes)", "Put it in quotes"),
    "int_from_float": ("a valid integer, without a fraction", "Round it"),
    "int_parsing_size": ("a smaller integer", "Write fewer digits"),
}
_OF_A_WHOLE = ("value_error", "too_short", "too_long")  # told of a value, not of what it lacks
_NUMBERS = ("int_type", "int_parsing", "float_type", "float_parsing")


def listed(words: Iterable[object]) -> str:
    return ", ".join(str(word) for word in words) or "nothing"


def shown(value: object) -> str:
    """Return a value as it would stand in YAML, cut to a line."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# ------------------------------------------------------------------ suggestions


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is meant, however its letters are written."""
    by_case = {each.casefold(): each for each in reversed(list(known))}
    close = difflib.get_close_matches(word.strip().casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a remedy: the closest known word, or what is known."""
    words = list(known)
    if not words:
        return "Remove it"
    close = closest(word, words)
    return f"Did you mean {close!r}?" if close else UNLIKE


def nearest_metric(word: str, known: Iterable[str]) -> str:
    """Return a remedy for a metric, which papers and people write as R@1, mAP@R, val/recall@4."""
    words = list(known)
    split, slash, name = word.strip().casefold().rpartition("/")
    name = re.sub(r"[@\s-]+", "_at_" if "@" in name else "_", name).strip("_")
    name = re.sub(r"^(r|p|recall|precision)_?(at_)?(\d+)$", r"recall_at_\3", name)
    name = {"map": "map_at_r", "rp": "r_precision", "f_1": "f1"}.get(name, name)
    whole = [f"{split}/{name}" if slash else f"val/{name}", name]
    near = next((each for each in whole if each in words), None) or closest(whole[0], words)
    near = near or closest(name, words)
    return f"Did you mean {near!r}?" if near else UNLIKE


def some_metrics(word: str, known: Iterable[str], most: int = 6) -> str:
    """Return a few known metrics for a message, those most like `word` first."""
    names = list(known)
    like = difflib.get_close_matches(word.casefold(), names, n=most, cutoff=0)
    hint = [name for name in names if repr(name) in nearest_metric(word, names)]
    first = list(dict.fromkeys([*hint[:1], *like]))[:most]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} others" if more > 0 else "")


# ------------------------------------------------------------------ faults that pydantic finds


def explain(
    error: ValidationError, model: type[BaseModel], data: Any
) -> tuple[list[str], ConfigError]:
    """Return the first fault of a validation: its path below `model`, and the message.

    Unknown keys come first: a misspelt key often is why another one is missing.
    """
    faults = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    fault = _likeliest(faults, data)
    path, kind = _path(fault, data), fault["type"]
    place, inner = ".".join(path), fault.get("ctx", {}).get("error")
    if isinstance(inner, ConfigError):
        if path[-1:] != [inner.path]:  # a validator of a whole part names the place in it
            path = [*path, *inner.path.split(".")] if inner.path else path
        return path, ConfigError(".".join(path), inner.found, inner.expected, inner.remedy)
    if kind == "extra_forbidden":
        return path, _unknown_key(path, model, data)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return path, _unknown_tag(fault, path, model, data)
    if kind == "missing":
        return path, ConfigError(place, "nothing", "a value: it is required", "Add it")
    expected, remedy = _IN_YAML.get(kind, ("", "Correct it"))
    if not expected:  # "Input should be …", "String should have …", "Value error, …"
        expected = re.sub(r"^(Value error, |Input should be )", "", str(fault["msg"]))
        expected = re.sub(r"^\w+ should ", "to ", expected)
    if kind == "literal_error":
        remedy = nearest(str(fault["input"]), re.findall(r"'([^']*)'", fault["msg"]))
    elif kind in _NUMBERS:
        remedy = "Write one number, in digits"
    elif kind.startswith(("greater_than", "less_than")):
        remedy = "Write another number"
    return path, ConfigError(place, shown(fault["input"]), expected, remedy)


def _path(fault: Any, data: Any) -> list[str]:
    """Return where a fault is, without the tags that pydantic puts in for the members of unions.

    `("method", "ddml", "alpha")` → `["method", "alpha"]` where `data["method"]["name"]` is "ddml",
    or where "ddml" is no key there. A tag appears at most once a level, before any key of it.
    """
    path: list[str] = []
    level, fresh, last = data, True, len(fault["loc"]) - 1
    for i, part in enumerate(fault["loc"]):
        if isinstance(level, Mapping):
            tag = fresh and path and any(level.get(each) == part for each in _TAGS)
            fresh = fresh and not tag
            own = path and part not in level and (i < last or fault["type"] in _OF_A_WHOLE)
            if tag or own:
                continue
        elif isinstance(level, list) and isinstance(part, str):
            continue
        elif path and not isinstance(level, list):
            break
        path.append(str(part))
        level, fresh = _child(level, str(part)), True
    return path


def _child(level: Any, key: str) -> Any:
    if isinstance(level, Mapping):
        return level.get(key)
    is_item = isinstance(level, list | tuple) and key.isdigit() and int(key) < len(level)
    return level[int(key)] if is_item else None


def _likeliest(faults: Sequence[Any], data: Any) -> Any:
    """Return the first fault; of a value that several kinds were tried for, that of the likeliest
    kind: of a list what is wrong in it, of a number that it is none."""
    first = faults[0]
    path = _path(first, data)
    for other in faults[1:]:
        other_path = _path(other, data)
        inside = len(other_path) > len(path) and isinstance(first["input"], list)
        numbers = other_path == path and {first["type"], other["type"]} <= {*_NUMBERS}
        if other_path[: len(path)] == path and (inside or numbers):
            return other
    return first


def _unknown_key(path: Sequence[str], model: type[BaseModel], data: Any) -> ConfigError:
    place, key = ".".join(path), path[-1]
    for removed, remedy in REMOVED_KEYS.items():
        if f".{place}".endswith(f".{removed}"):
            return ConfigError(place, REMOVED, "a spec without it", remedy)
    names = [info.alias or name for name, info in fields_at(model, path[:-1], data).items()]
    axes = [name for name in AXES if name in names]
    if key in AXES and axes:  # what a study varies, under the name that another design has for it
        remedy = f"Did you mean {axes[0]!r}?"
    elif closest(key, names) is None and (owners := _owners(path)):
        remedy = f"It is an option of {path[-2]} {listed(owners)}"
    else:
        remedy = nearest(key, names)
    known = f"one of {listed(names)}" if names else "no such key"
    return ConfigError(place, f"the unknown key {key!r}", known, remedy)


def _owners(path: Sequence[str]) -> list[str]:
    """Return the methods or losses that have an option, by its path in a trial."""
    from trainables.trial import TrialConfig  # with torch: of faults of a trial alone

    info = TrialConfig.model_fields.get(path[-2]) if len(path) > 1 else None
    mark = _mark_of(info.metadata) if info else None
    components = {name: mark.registry[name] for name in mark.registry} if mark else {}
    return [name for name, each in components.items() if path[-1] in each.Config.model_fields]


def _unknown_tag(
    fault: Mapping[str, Any], path: Sequence[str], model: type[BaseModel], data: Any
) -> ConfigError:
    """Return the error for a member of a union whose tag (`design`, `name`) is missing, misspelt or
    unknown."""
    place, context, given = ".".join(path), fault["ctx"], fault["input"]
    tag = str(context["discriminator"]).strip("'")
    if fault["type"] == "union_tag_invalid":
        known = [part.strip(" '") for part in str(context["expected_tags"]).split(",")]
        name = str(context["tag"])
        remedy = nearest(name, known)
        return ConfigError(f"{place}.{tag}", repr(name), f"one of {listed(known)}", remedy)
    annotation, metadata, _ = _descend(model, path, data)
    members = [name for each in _models_in(annotation) for name in _tag_values(each, tag)]
    mark = _mark_of(metadata)
    known = list(mark.registry) if mark else members
    expected = f"{tag}: one of {listed(known)}" if known else f"a {tag}"
    near = closest(tag, map(str, given)) if isinstance(given, Mapping) else None
    if near is None:
        return ConfigError(place, f"no {tag}", expected, f"Say which {path[-1]} is meant")
    remedy = f"Did you mean {tag!r}?"
    return ConfigError(f"{place}.{near}", f"the unknown key {near!r}", expected, remedy)


# ------------------------------------------------------------------ what a model knows at a path


def fields_at(model: type[BaseModel], path: Sequence[str], data: Any) -> dict[str, FieldInfo]:
    """Return the fields of the model at `path` below `model`; none where there is no model.

    The members of tagged unions are told by `data`, which may be partial.
    """
    inner = _model_of(*_descend(model, path, data))
    return {} if inner is None else dict(inner.model_fields)


def is_free(annotation: Any) -> bool:
    """Whether a field is a mapping of names that no model knows to plain values."""
    return get_origin(annotation) is dict and not list(_models_in(get_args(annotation)[1]))


def _descend(model: Any, path: Sequence[str], data: Any) -> tuple[Any, Sequence[Any], Any]:
    """Return the annotation at `path` below `model`, its metadata, and the data there."""
    annotation: Any = model
    metadata: Sequence[Any] = ()
    for key in path:
        inner = _model_of(annotation, metadata, data)
        if inner is not None:
            named = {info.alias or name: info for name, info in inner.model_fields.items()}
            info = named.get(key)
            annotation, metadata = (info.annotation, info.metadata) if info else (None, ())
        else:  # of a mapping or list, perhaps an optional one
            kinds = (annotation, *get_args(annotation))
            container = next((k for k in kinds if get_origin(k) in (dict, list, tuple)), None)
            members = get_args(container) or (None,)
            annotation, metadata = members[1 if get_origin(container) is dict else 0], ()
        data = _child(data, key)
    return annotation, metadata, data


def _model_of(annotation: Any, metadata: Sequence[Any], data: Any) -> type[BaseModel] | None:
    """Return the model in an annotation; of a union that which `data` names by its tag."""
    if (mark := _mark_of(metadata)) is not None:
        name = data.get("name") if isinstance(data, Mapping) else None
        name = mark.default if name is None else name
        known = isinstance(name, str) and name in mark.registry
        return mark.registry[str(name)].Config if known else None
    models = [] if isinstance(data, list) else list(_models_in(annotation))
    for model in models if isinstance(data, Mapping) else ():
        if any(data.get(tag) in _tag_values(model, tag) for tag in _TAGS):
            return model
    return models[0] if len(models) == 1 else None


def _mark_of(metadata: Sequence[Any]) -> FromRegistry | None:
    """Return the mark of a field that configures a component of a registry."""
    return next((mark for mark in metadata if isinstance(mark, FromRegistry)), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of a union, however deep in `Optional` and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) not in (dict, list, tuple):
        for each in get_args(annotation):
            yield from _models_in(each)


def _tag_values(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """Return the values of `tag` by which a member of a tagged union is told."""
    info = model.model_fields.get(tag)
    return get_args(info.annotation) if info is not None else ()
