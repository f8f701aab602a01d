"""Turn pydantic's validation errors of a spec into one sentence in terms of YAML."""

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
    r"factor_curves\.\d+\.(interval|log)": "bars are 95 % t intervals, and the levels decide "
    "whether the axis is logarithmic",
    "generators": "`fraction: fractional` finds its runs by `resolution`",
    r"resources\.priority": "sweeps that share a cluster take the slots that are free",
    "training.packed": "each trial trains alone",
}
_TAGS = ("design", "name")  # the discriminator fields of unions

_MAPPING = "must be a mapping (`key: value` on indented lines below it)"
_LIST = "must be a list (write [a, b], or entries that begin with `- `)"
_BOOL = "must be true or false, without quotes"
# Type of pydantic's error → what the value must be, in terms of YAML.
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
_OF_A_WHOLE = ("value_error", "too_short", "too_long")  # errors of a value, not of a missing key


def join_words(words: Iterable[object]) -> str:
    """Join words by commas; "nothing" if there are none."""
    return ", ".join(str(item) for item in words) or "nothing"


def format_value(value: object) -> str:
    """Return a value as in YAML, cut to 58 characters if it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# ------------------------------------------------------------------ suggestions


def find_closest(query: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the candidate most similar to a word, ignoring case; None if none is similar."""
    by_case = {candidate.casefold(): candidate for candidate in reversed(list(candidates))}
    close = difflib.get_close_matches(query.strip().casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def suggest_nearest(query: str, candidates: Iterable[str]) -> str:
    """Return a remedy for an unknown word: the most similar candidate, if there is one."""
    close = find_closest(query, candidates)
    return f"Did you mean {close!r}?" if close else "Choose one of those"


def describe_unknown(what: str, query: str, candidates: Iterable[str]) -> str:
    """Return the message for an unknown word, with all candidates and a remedy."""
    words = list(candidates)
    remedy = suggest_nearest(query, words)
    return f"{what} {query!r} is unknown; there are {join_words(words)}. {remedy}"


def suggest_metric(query: str, candidates: Iterable[str]) -> str:
    """Return a remedy for an unknown metric, also if written as R@1, mAP@R or val/recall@4."""
    words = list(candidates)
    split, slash, name = query.strip().casefold().rpartition("/")
    name = re.sub(r"[@\s-]+", "_at_" if "@" in name else "_", name).strip("_")
    name = re.sub(r"^(r|p|recall|precision)_?(at_)?(\d+)$", r"recall_at_\3", name)
    name = {"map": "map_at_r", "rp": "r_precision", "f_1": "f1"}.get(name, name)
    spellings = (f"{split}/{name}" if slash else f"val/{name}", name)
    exact = next((spelling for spelling in spellings if spelling in words), None)
    return suggest_nearest(exact or (spellings[0] if slash else name), words)


def list_similar_metrics(query: str, candidates: Iterable[str], most: int = 6) -> str:
    """Return the `most` metrics that are most similar to `query`, and the number of others."""
    names = list(candidates)
    similar = difflib.get_close_matches(query.casefold(), names, n=most, cutoff=0)
    more = len(names) - len(similar)
    return ", ".join(similar) + (f" and {more} others" if more > 0 else "")


def describe_unknown_metric(metric: str, candidates: Iterable[str], more: str = "") -> str:
    """Return the message for an unknown metric, with similar ones and a remedy."""
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
    """Return the path and the message of the first error of a validation.

    Unknown keys come first, because a misspelt key is often the reason for a missing one.

    Args:
        error: pydantic's error.
        model: the validated model.
        data: the validated data.
        suggest: returns a remedy for the path of an unknown key that resembles no other key.
    """
    faults = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    paths = [_find_path(fault, data) for fault in faults]
    index = 0
    if isinstance(faults[0]["input"], list):  # prefer the member of a union that matched furthest
        inside = [i for i, path in enumerate(paths) if path[: len(paths[0])] == paths[0]]
        index = max(inside, key=lambda i: len(paths[i]))
    fault, path = faults[index], paths[index]
    kind, field, inner = fault["type"], ".".join(path), fault.get("ctx", {}).get("error")
    if isinstance(inner, ConfigError):
        if path[-1:] != [inner.path]:  # a validator of a model names the path below it
            path = [*path, *inner.path.split(".")] if inner.path else path
        return path, inner.move_to(".".join(path))
    if kind == "extra_forbidden":
        return path, ConfigError(field, _describe_unknown_key(path, model, data, suggest))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return path, _explain_tag(fault, path, model, data)
    if kind == "missing":
        return path, ConfigError(field, "it is required. Add it.")
    if kind == "value_error":
        text = str(fault["msg"]).removeprefix("Value error, ")
        return path, ConfigError(field, text)
    text = str(fault["msg"]).partition(" after validation")[0]
    must = _IN_YAML.get(kind) or re.sub(r"^\w+ should ", "must ", text)
    message = f"it {must}, not {format_value(fault['input'])}"
    if kind == "literal_error":
        literals = re.findall(r"'([^']*)'", fault["msg"])
        message = f"{message}. {suggest_nearest(str(fault['input']), literals)}"
    return path, ConfigError(field, message)


def _find_path(fault: Any, data: Any) -> list[str]:
    """Return the path of an error, without the tags that pydantic inserts for members of unions.

    `("method", "ddml", "alpha")` becomes `["method", "alpha"]` if `data["method"]["name"]` is
    "ddml", or if "ddml" is no key there. A level has at most one tag, before its keys.
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
    """Return the value of a key or index; None if there is none."""
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
    """Return the message for an unknown or removed key."""
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
    """Return the error for a missing or unknown tag (`design`, `name`) of a union's member."""
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
    return ConfigError(field, f"its `{tag}` is missing. Add it{choices}")


# ------------------------------------------------------------------ what a model knows at a path


def list_fields_at(model: type[BaseModel], path: Sequence[str], data: Any) -> dict[str, FieldInfo]:
    """Return the fields of the model at `path` below `model`; empty if there is no model.

    The tags in `data`, which may be partial, select the members of unions.
    """
    inner = _find_model(*_descend_to(model, path, data))
    return {} if inner is None else dict(inner.model_fields)


def is_free(annotation: Any) -> bool:
    """Return whether a field is a mapping with arbitrary keys and plain values."""
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
        else:  # a mapping or list, perhaps optional
            kinds = (annotation, *get_args(annotation))
            container = next((k for k in kinds if get_origin(k) in (dict, list, tuple)), None)
            members = get_args(container) or (None,)
            annotation, metadata = members[1 if get_origin(container) is dict else 0], ()
        data = _get_child(data, key)
    return annotation, metadata, data


def _find_model(annotation: Any, metadata: Sequence[Any], data: Any) -> type[BaseModel] | None:
    """Return the model of an annotation, or the member of a union whose tag `data` has."""
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
    """Return the registry mark of a field that configures a component; None without one."""
    return next((mark for mark in metadata if isinstance(mark, FromRegistry)), None)


def _iterate_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of a union, including those nested in `Optional` and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) not in (dict, list, tuple):
        for argument in get_args(annotation):
            yield from _iterate_models(argument)


def _list_tag_values(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """Return the values of `tag` that select a model in a union."""
    info = model.model_fields.get(tag)
    return get_args(info.annotation) if info is not None else ()
