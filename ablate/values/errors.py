"""Faults that pydantic finds in a spec, each as one sentence that speaks of YAML."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from trainables.config.registry import FromRegistry
from trainables.errors import ConfigError

VERSION = "0.2.0"
# The end of a removed key's path, as a pattern → what to do instead.
REMOVED_KEYS = {
    r"studies\..*by": "the study's first objective decides, so list that metric first there",
    "generators": "`fraction: fractional` finds its runs by `resolution`",
    r"resources\.priority": "sweeps that share a cluster take the slots that are free",
    "training.packed": "each trial trains alone",
}
_TAGS = ("design", "name")  # the fields by which the members of unions are told

_MAPPING = "must be a mapping (`key: value` on indented lines below it)"
_LIST = "must be a list (write [a, b], or entries that begin with `- `)"
_BOOL = "must be true or false, without quotes"
# Kind of pydantic's fault → what the value must be, in words of YAML.
_IN_YAML = {
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "bool_type": _BOOL,
    "bool_parsing": _BOOL,
    "invalid_key": "must be text (put it in quotes)",
    "string_type": "must be text (a number or a word of YAML needs quotes)",
    "int_from_float": "must be a valid integer, without a fraction",
    "int_parsing_size": "must be a smaller integer",
}
_OF_A_WHOLE = ("value_error", "too_short", "too_long")  # told of a value, not of what it lacks


def join_words(words: Iterable[object]) -> str:
    return ", ".join(str(item) for item in words) or "nothing"


def format_value(value: object) -> str:
    """Return a value as it would stand in YAML, cut to a line."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# ------------------------------------------------------------------ suggestions


def find_closest(query: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is meant, however its letters are written."""
    by_case = {candidate.casefold(): candidate for candidate in reversed(list(candidates))}
    close = difflib.get_close_matches(query.strip().casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def suggest_nearest(query: str, candidates: Iterable[str]) -> str:
    """Return a remedy: the closest known word, or what is known."""
    close = find_closest(query, candidates)
    return f"Did you mean {close!r}?" if close else "Choose one of those"


def describe_unknown(what: str, query: str, candidates: Iterable[str]) -> str:
    """Return the message for a word that is none of the known ones."""
    words = list(candidates)
    remedy = suggest_nearest(query, words)
    return f"{what} {query!r} is unknown; there are {join_words(words)}. {remedy}"


def suggest_metric(query: str, candidates: Iterable[str]) -> str:
    """Return a remedy for a metric, which papers and people write as R@1, mAP@R, val/recall@4."""
    words = list(candidates)
    split, slash, name = query.strip().casefold().rpartition("/")
    name = re.sub(r"[@\s-]+", "_at_" if "@" in name else "_", name).strip("_")
    name = re.sub(r"^(r|p|recall|precision)_?(at_)?(\d+)$", r"recall_at_\3", name)
    name = {"map": "map_at_r", "rp": "r_precision", "f_1": "f1"}.get(name, name)
    spellings = (f"{split}/{name}" if slash else f"val/{name}", name)
    near = next((spelling for spelling in spellings if spelling in words), None)
    return (
        suggest_nearest(near or spellings[0], words)
        if near or slash
        else suggest_nearest(name, words)
    )


def list_similar_metrics(query: str, candidates: Iterable[str], most: int = 6) -> str:
    """Return a few known metrics for a message, those most like `query` first."""
    names = list(candidates)
    like = difflib.get_close_matches(query.casefold(), names, n=most, cutoff=0)
    more = len(names) - len(like)
    return ", ".join(like) + (f" and {more} others" if more > 0 else "")


def describe_unknown_metric(metric: str, candidates: Iterable[str], more: str = "") -> str:
    """Return the message for a metric that is none of the known ones."""
    names = list(candidates)
    return (
        f"{metric!r} is no metric here; there are {list_similar_metrics(metric, names)}{more}. "
        f"{suggest_metric(metric, names)}"
    )


# ------------------------------------------------------------------ faults that pydantic finds


def explain_validation_error(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    suggest: Callable[[str], str] | None = None,
) -> tuple[list[str], ConfigError]:
    """Return the first fault of a validation: its path below `model`, and the message.

    Unknown keys come first: a misspelt key often is why another one is missing.

    Args:
        suggest: gives a remedy for the path of an unknown key that is like none beside it.
    """
    faults = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    paths = [_find_path(fault, data) for fault in faults]
    index = 0
    if isinstance(faults[0]["input"], list):  # of the kinds that were tried, the one that got on
        inside = [i for i, path in enumerate(paths) if path[: len(paths[0])] == paths[0]]
        index = max(inside, key=lambda i: len(paths[i]))
    fault, path = faults[index], paths[index]
    kind, field, inner = fault["type"], ".".join(path), fault.get("ctx", {}).get("error")
    if isinstance(inner, ConfigError):
        if path[-1:] != [inner.path]:  # a validator of a whole part names the place in it
            path = [*path, *inner.path.split(".")] if inner.path else path
        return path, inner.move_to(".".join(path))
    if kind == "extra_forbidden":
        return path, ConfigError(field, _describe_unknown_key(path, model, data, suggest))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return path, _explain_tag(fault, path, model, data)
    if kind == "missing":
        return path, ConfigError(field, "it is required: add it")
    if kind == "value_error":
        text = str(fault["msg"]).removeprefix("Value error, ")
        return path, ConfigError(field, text)
    said = str(fault["msg"]).partition(" after validation")[0]
    must = _IN_YAML.get(kind) or re.sub(r"^\w+ should ", "must ", said)
    message = f"it {must}, not {format_value(fault['input'])}"
    if kind == "literal_error":
        literals = re.findall(r"'([^']*)'", fault["msg"])
        message = f"{message}. {suggest_nearest(str(fault['input']), literals)}"
    return path, ConfigError(field, message)


def _find_path(fault: Any, data: Any) -> list[str]:
    """Return where a fault is, without the tags that pydantic puts in for the members of unions.

    `("method", "ddml", "alpha")` → `["method", "alpha"]` where `data["method"]["name"]` is "ddml",
    or where "ddml" is no key there. A tag appears at most once a level, before any key of it.
    """
    path: list[str] = []
    level, fresh, last = data, True, len(fault["loc"]) - 1
    for i, part in enumerate(fault["loc"]):
        if isinstance(level, Mapping):
            tag = fresh and path and any(level.get(field) == part for field in _TAGS)
            fresh = fresh and not tag
            is_member = path and part not in level and (i < last or fault["type"] in _OF_A_WHOLE)
            if tag or is_member:
                continue
        elif isinstance(level, list) and isinstance(part, str):
            continue
        elif path and not isinstance(level, list):
            break
        path.append(str(part))
        level, fresh = _get_child(level, str(part)), True
    return path


def _get_child(level: Any, key: str) -> Any:
    if isinstance(level, Mapping):
        return level.get(key)
    is_item = isinstance(level, list | tuple) and key.isdigit() and int(key) < len(level)
    return level[int(key)] if is_item else None


def _describe_unknown_key(
    path: Sequence[str],
    model: type[BaseModel],
    data: Any,
    suggest: Callable[[str], str] | None,
) -> str:
    field, key = ".".join(path), path[-1]
    for removed, instead in REMOVED_KEYS.items():
        if re.search(rf"(^|\.){removed}$", field):
            return f"it was removed in {VERSION}. Leave it out: {instead}"
    names = [info.alias or name for name, info in list_fields_at(model, path[:-1], data).items()]
    if suggest is not None and find_closest(key, names) is None:
        return f"the key {key!r} is unknown; there are {join_words(names)}. {suggest(field)}"
    return describe_unknown("the key", key, names)


def _explain_tag(
    fault: Mapping[str, Any], path: Sequence[str], model: type[BaseModel], data: Any
) -> ConfigError:
    """Return the error for a member of a union whose tag (`design`, `name`) is missing or wrong."""
    field, context = ".".join(path), fault["ctx"]
    tag = str(context["discriminator"]).strip("'")
    if fault["type"] == "union_tag_invalid":
        names = [part.strip(" '") for part in str(context["expected_tags"]).split(",")]
        return ConfigError(
            f"{field}.{tag}", describe_unknown(f"the {tag}", str(context["tag"]), names)
        )
    annotation, metadata, _ = _descend_to(model, path, data)
    mark = _mark_of(metadata)
    members = (
        name
        for inner_model in _iterate_models(annotation)
        for name in _list_tag_values(inner_model, tag)
    )
    names = list(mark.registry if mark else members)
    choices = f": one of {join_words(names)}" if names else ""
    return ConfigError(field, f"its `{tag}` is missing; add it{choices}")


# ------------------------------------------------------------------ what a model knows at a path


def list_fields_at(model: type[BaseModel], path: Sequence[str], data: Any) -> dict[str, FieldInfo]:
    """Return the fields of the model at `path` below `model`; none where there is no model.

    The members of tagged unions are told by `data`, which may be partial.
    """
    inner = _find_model(*_descend_to(model, path, data))
    return {} if inner is None else dict(inner.model_fields)


def is_free(annotation: Any) -> bool:
    """Return whether a field is a mapping of names that no model knows to plain values."""
    return get_origin(annotation) is dict and not list(_iterate_models(get_args(annotation)[1]))


def _descend_to(model: Any, path: Sequence[str], data: Any) -> tuple[Any, Sequence[Any], Any]:
    """Return the annotation at `path` below `model`, its metadata, and the data there."""
    annotation: Any = model
    metadata: Sequence[Any] = ()
    for key in path:
        inner = _find_model(annotation, metadata, data)
        if inner is not None:
            named = {info.alias or name: info for name, info in inner.model_fields.items()}
            info = named.get(key)
            annotation, metadata = (info.annotation, info.metadata) if info else (None, ())
        else:  # of a mapping or list, perhaps an optional one
            kinds = (annotation, *get_args(annotation))
            container = next((k for k in kinds if get_origin(k) in (dict, list, tuple)), None)
            members = get_args(container) or (None,)
            annotation, metadata = members[1 if get_origin(container) is dict else 0], ()
        data = _get_child(data, key)
    return annotation, metadata, data


def _find_model(annotation: Any, metadata: Sequence[Any], data: Any) -> type[BaseModel] | None:
    """Return the model in an annotation; of a union that which `data` names by its tag."""
    if (mark := _mark_of(metadata)) is not None:
        name = data.get("name") if isinstance(data, Mapping) else None
        name = mark.default if name is None else name
        is_registered = isinstance(name, str) and name in mark.registry
        return mark.registry[str(name)].Config if is_registered else None
    models = [] if isinstance(data, list) else list(_iterate_models(annotation))
    for model in models if isinstance(data, Mapping) else ():
        if any(data.get(tag) in _list_tag_values(model, tag) for tag in _TAGS):
            return model
    return models[0] if len(models) == 1 else None


def _mark_of(metadata: Sequence[Any]) -> FromRegistry | None:
    """Return the mark of a field that configures a component of a registry."""
    return next((mark for mark in metadata if isinstance(mark, FromRegistry)), None)


def _iterate_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of a union, however deep in `Optional` and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) not in (dict, list, tuple):
        for argument in get_args(annotation):
            yield from _iterate_models(argument)


def _list_tag_values(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """Return the values of `tag` by which a member of a tagged union is told."""
    info = model.model_fields.get(tag)
    return get_args(info.annotation) if info is not None else ()
