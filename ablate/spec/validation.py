"""Turn pydantic's validation errors of a spec into one sentence in terms of YAML."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from trainables.config.registry import FromRegistry
from trainables.words.errors import ConfigError
from trainables.words.messages import (
    describe_unknown,
    find_closest,
    format_value,
    join_words,
    suggest_nearest,
)

_TAGS = ("design", "name")  # the discriminator fields of unions

# What a value must be, in terms of YAML → the types of pydantic's errors that say so.
_REQUIREMENTS = {
    "must be a mapping (`key: value` on indented lines below it)": (
        *("dict_type", "mapping_type", "model_type", "model_attributes_type"),
    ),
    "must be a list (write [a, b], or entries that begin with `- `)": ("list_type", "tuple_type"),
    "must be true or false, without quotes": ("bool_type", "bool_parsing"),
    "must be text (put it in quotes)": ("invalid_key",),
    "must be text (a number or a word of YAML needs quotes)": ("string_type",),
    "must be a whole number": ("int_from_float", "int_parsing", "int_type"),
    "must be a number": ("float_parsing", "float_type"),
    "must be a smaller integer": ("int_parsing_size",),
    "must be an amount of memory (write 20GB, 20 GiB or a number of bytes)": (
        *("byte_size", "byte_size_unit"),
    ),
}
_REQUIREMENT_BY_TYPE = {kind: text for text, kinds in _REQUIREMENTS.items() for kind in kinds}
_VALUE_ERRORS = ("value_error", "too_short", "too_long")  # of a value that is there


def explain_validation_error(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    suggest: Callable[[str], str] | None = None,
) -> tuple[list[str], ConfigError]:
    """Return the path of a validation's first fault, and an error that explains it.

    Unknown keys come first, because a misspelt key is often the reason for a missing one.

    Args:
        error: what pydantic raised when `model` validated `data`.
        suggest: returns a remedy for the path of an unknown key that resembles no other key.
    """
    faults = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    paths = [_find_path(fault, data) for fault in faults]
    # each member of a union has a fault: the member with the deepest fault matches best
    index = 0
    if isinstance(faults[0]["input"], list | dict):
        union = paths[0]
        inside = [i for i, path in enumerate(paths) if path[: len(union)] == union]
        index = max(inside, key=lambda i: len(paths[i]))
    fault, path = faults[index], paths[index]
    kind, field, cause = fault["type"], ".".join(path), fault.get("ctx", {}).get("error")
    # explain a fault that a validator of this project raised
    if isinstance(cause, ConfigError):
        if path[-1:] != [cause.path]:  # a validator of a model names the path below the model
            path = [*path, *cause.path.split(".")] if cause.path else path
        return path, cause.move_to(".".join(path))
    # explain a fault that pydantic found
    if kind == "extra_forbidden":
        return path, ConfigError(field, *_describe_unknown_key(path, model, data, suggest))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return path, _explain_tag(fault, path, model, data)
    if kind == "missing":
        return path, ConfigError(field, "this key is required", "Add the key")
    if kind == "value_error":
        return path, ConfigError(field, str(fault["msg"]).removeprefix("Value error, "))
    text = str(fault["msg"]).partition(" after validation")[0]
    requirement = _REQUIREMENT_BY_TYPE.get(kind) or re.sub(r"^\w+ should ", "must ", text)
    literals = re.findall(r"'([^']*)'", fault["msg"])
    return path, ConfigError(
        field,
        f"the value {requirement}, not {format_value(fault['input'])}",
        suggest_nearest(str(fault["input"]), literals) if kind == "literal_error" else "",
    )


def _find_path(fault: Any, data: Any) -> list[str]:
    """Return the path in `data` of pydantic's fault, whose `loc` also has the tags of unions.

    A tag is the name of a union's member. `("method", "ddml", "alpha")` becomes `["method",
    "alpha"]` if `data["method"]["name"]` is "ddml", or if "ddml" is no key of `data["method"]`.
    A level has at most one tag, before its keys.
    """
    path: list[str] = []
    level, can_be_tag, last = data, True, len(fault["loc"]) - 1  # level: the data at `path`
    for i, part in enumerate(fault["loc"]):
        if isinstance(level, Mapping):
            is_tag = can_be_tag and path and any(level.get(field) == part for field in _TAGS)
            can_be_tag = can_be_tag and not is_tag
            # only the last part may be absent: a missing or unknown key, not a tag `literal['a']`
            must_exist = i < last or fault["type"] in _VALUE_ERRORS or "literal[" in str(part)
            if is_tag or (path and part not in level and must_exist):
                continue
        elif isinstance(level, list) and isinstance(part, str):
            continue  # a tag: items of a list have numbers
        elif path and not isinstance(level, list):
            break  # a plain value has nothing below it
        path.append(str(part))
        level, can_be_tag = _get_child(level, str(part)), True
    return path


def _get_child(level: Any, key: str) -> Any:
    """Return the value at a key of a mapping or an index of a list; None if there is none."""
    if isinstance(level, Mapping):
        return level.get(key)
    is_item = isinstance(level, list | tuple) and key.isdigit() and int(key) < len(level)
    return level[int(key)] if is_item else None


def _describe_unknown_key(
    path: Sequence[str], model: type[BaseModel], data: Any, suggest: Callable[[str], str] | None
) -> tuple[str, str]:
    """Return fault and remedy for the unknown key at `path`.

    `suggest` returns the remedy for a key that resembles no field of `model` there.
    """
    field, key = ".".join(path), path[-1]
    names = [info.alias or name for name, info in list_fields_at(model, path[:-1], data).items()]
    if suggest is not None and find_closest(key, names) is None:
        return f"the key {key!r} is unknown; there are {join_words(names)}", suggest(field)
    return describe_unknown("the key", key, names)


def _explain_tag(
    fault: Mapping[str, Any], path: Sequence[str], model: type[BaseModel], data: Any
) -> ConfigError:
    """Return the error for a missing or unknown tag: `design` or `name`, which selects a model."""
    field, context = ".".join(path), fault["ctx"]
    tag = str(context["discriminator"]).strip("'")
    if fault["type"] == "union_tag_invalid":
        names = [part.strip(" '") for part in str(context["expected_tags"]).split(",")]
        return ConfigError(
            f"{field}.{tag}", *describe_unknown(f"the {tag}", str(context["tag"]), names)
        )
    # list the tags of the components that a registry has, or of the models of the union
    annotation, metadata, _ = _descend_to(model, path, data)
    if mark := _find_registry_mark(metadata):
        names = list(mark.registry)
    else:
        models = _iterate_models(annotation)
        names = [name for inner_model in models for name in _list_tag_values(inner_model, tag)]
    choices = f" with one of {join_words(names)}" if names else ""
    return ConfigError(field, f"the key `{tag}` is missing", f"Add the key{choices}")


def list_fields_at(model: type[BaseModel], path: Sequence[str], data: Any) -> dict[str, FieldInfo]:
    """Return the fields of the model at `path` below `model`; empty if there is no model.

    The keys `design` and `name` in `data`, which may be partial, select the members of unions.
    """
    inner = _find_model(*_descend_to(model, path, data))
    return {} if inner is None else dict(inner.model_fields)


def is_free(annotation: Any) -> bool:
    """Return whether a field is a mapping with arbitrary keys and plain values."""
    return get_origin(annotation) is dict and not list(_iterate_models(get_args(annotation)[1]))


def _descend_to(model: Any, path: Sequence[str], data: Any) -> tuple[Any, Sequence[Any], Any]:
    """Return the type annotation at `path` below `model`, its metadata, and the value in `data`."""
    annotation: Any = model
    metadata: Sequence[Any] = ()
    for key in path:
        inner = _find_model(annotation, metadata, data)
        if inner is not None:
            fields = {info.alias or name: info for name, info in inner.model_fields.items()}
            info = fields.get(key)
            annotation, metadata = (info.annotation, info.metadata) if info else (None, ())
        else:  # a mapping or list, perhaps optional
            types = (annotation, *get_args(annotation))
            container = next((t for t in types if get_origin(t) in (dict, list, tuple)), None)
            arguments = get_args(container) or (None,)  # dict[key, value], list[item]
            annotation, metadata = arguments[1 if get_origin(container) is dict else 0], ()
        data = _get_child(data, key)
    return annotation, metadata, data


def _find_model(annotation: Any, metadata: Sequence[Any], data: Any) -> type[BaseModel] | None:
    """Return the model that validates `data`; None if there is none, or several may do so.

    A registry finds the model by `data["name"]`, a union by `design` or `name`.
    """
    if (mark := _find_registry_mark(metadata)) is not None:
        name = data.get("name") if isinstance(data, Mapping) else None
        name = mark.default if name is None else name
        is_registered = isinstance(name, str) and name in mark.registry
        return mark.registry[str(name)].Config if is_registered else None
    models = [] if isinstance(data, list) else list(_iterate_models(annotation))
    for model in models if isinstance(data, Mapping) else ():
        if any(data.get(tag) in _list_tag_values(model, tag) for tag in _TAGS):
            return model
    return models[0] if len(models) == 1 else None


def _find_registry_mark(metadata: Sequence[Any]) -> FromRegistry | None:
    """Return the mark that names the registry of a field's component; None for other fields."""
    return next((mark for mark in metadata if isinstance(mark, FromRegistry)), None)


def _iterate_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the pydantic models of an annotation: itself, or those of unions and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) not in (dict, list, tuple):
        for argument in get_args(annotation):
            yield from _iterate_models(argument)


def _list_tag_values(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """Return the values of the key `tag` (`design` or `name`) that select a model in a union."""
    info = model.model_fields.get(tag)
    return get_args(info.annotation) if info is not None else ()
