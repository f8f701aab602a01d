"""Pydantic's validation errors → one line: path, found, expected, remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ablate.values.remedies import expected, nearest, remedy
from ablate.values.removed import removed_key
from ablate.values.wording import listed, shown
from trainables.config.registry import FromRegistry
from trainables.errors import ConfigError

_TAGS = ("design", "name")  # the fields by which tagged unions are told
AXES = ("space", "grid", "factors", "components", "variants")  # what a study varies, by design
LISTED, NAMED = "list of levels", "named levels"  # the members of a union told by their type
_MEMBER = re.compile(r"(int|float|str|bool|(constrained-|function-|tuple\[|dict\[|list\[).*)")


def untagged(parts: Sequence[str | int], data: Any) -> list[str]:
    """The location without the tags that pydantic puts in for tagged unions.

    `("method", "ddml", "alpha")` → `["method", "alpha"]` where `data["method"]["name"]` is
    "ddml". A tag appears at most once a level, before any key of that level.
    """
    clean: list[str] = []
    level, fresh = data, True
    for part in parts:
        if part in (LISTED, NAMED):
            continue
        if fresh and clean and isinstance(level, Mapping):
            fresh = False
            if any(level.get(tag) == part for tag in _TAGS):
                continue
        if isinstance(level, list) and isinstance(part, str):
            continue  # pydantic's name for a member of a plain union
        if isinstance(level, Mapping) and part not in level and _MEMBER.fullmatch(str(part)):
            continue  # likewise
        if clean and not isinstance(level, Mapping | list):
            break
        clean.append(str(part))
        level, fresh = _child(level, part), True
    return clean


def _child(level: Any, part: str | int) -> Any:
    if isinstance(level, Mapping):
        return level.get(part)
    if isinstance(level, Sequence) and isinstance(part, int) and part < len(level):
        return level[part]
    return None


def _named(model: type[BaseModel], data: Any) -> Any:
    """`data` with the names that fields of a registry have where none is given: pydantic's
    locations hold them."""
    if not isinstance(data, Mapping):
        return data
    names = {
        field: mark.default
        for field, info in model.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, FromRegistry) and mark.default is not None
    }
    left_out = {
        field: {"name": name, **data[field]}
        for field, name in names.items()
        if isinstance(data.get(field), Mapping)
    }
    return {**data, **left_out}


def fields_at(model: type[BaseModel], path: Sequence[str], data: Any) -> dict[str, FieldInfo]:
    """Fields of the model at `path` below `model`; empty where there is no model.

    The members of tagged unions are told by `data`, which may be partial.
    """
    inner: Any = model
    for part in path:
        fields = inner.model_fields if _is_model(inner) else {}
        data = _child(data, int(part) if isinstance(data, list) and part.isdigit() else part)
        if fields:
            names = {info.alias or name: info for name, info in fields.items()}
            if part not in names:
                return {}
            inner = _model_of(names[part].annotation, names[part].metadata, data)
        else:
            inner = _model_of(inner, (), data) if inner is not None else None
        if inner is None:
            return {}
    return dict(inner.model_fields) if _is_model(inner) else {}


def _is_model(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def is_free(annotation: Any) -> bool:
    """Whether a field is a mapping of names that no model knows to plain values."""
    return get_origin(annotation) is dict and _model_of(get_args(annotation)[1], (), None) is None


def _model_of(annotation: Any, metadata: Sequence[Any], data: Any) -> Any:
    """The model class inside an annotation; for `dict[str, M]` and `tuple[M, ...]` it is M's."""
    for mark in metadata:
        if isinstance(mark, FromRegistry):
            name = data.get("name") if isinstance(data, Mapping) else None
            name = mark.default if name is None else name
            known = isinstance(name, str) and name in mark.registry
            return mark.registry[str(name)].Config if known else None
    if _is_model(annotation):
        return annotation
    members = [arg for arg in get_args(annotation) if arg is not type(None)]
    if get_origin(annotation) in (dict, tuple, list):
        return _Items(members[-1] if get_origin(annotation) is dict else members[0])
    if isinstance(annotation, _Items):
        return _model_of(annotation.member, (), data)
    models = [m for m in (_model_of(member, (), data) for member in members) if m is not None]
    for model in models:
        if isinstance(data, Mapping) and any(data.get(tag) in _told(model, tag) for tag in _TAGS):
            return model
    return models[0] if len(models) == 1 else None


def _told(model: Any, tag: str) -> tuple[Any, ...]:
    """The values of `tag` by which a member of a tagged union is told."""
    info = model.model_fields.get(tag) if _is_model(model) else None
    return get_args(info.annotation) if info is not None else ()


def _members(annotation: Any) -> Iterator[Any]:
    """The models of a union, however deep in `Optional` and `Annotated`."""
    if _is_model(annotation):
        yield annotation
    for arg in get_args(annotation):
        yield from _members(arg)


class _Items:
    """Stands for a mapping or a list whose members are of one annotation."""

    def __init__(self, member: Any) -> None:
        self.member = member


def explain(
    error: ValidationError, model: type[BaseModel], data: Any
) -> tuple[list[str], ConfigError]:
    """The first fault of a validation: its path below `model`, and the message (path dotted).

    Unknown keys come first: a misspelt key often is why another one is missing.
    """
    data = _named(model, data)
    faults = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    fault = _told_best(faults, data)
    path = untagged(fault["loc"], data)
    kind, context = fault["type"], fault.get("ctx", {})
    dotted = ".".join(path)
    inner = context.get("error")
    if isinstance(inner, ConfigError):
        if path[-1:] != [inner.path]:  # a validator of a whole part names the place in it
            path = [*path, *inner.path.split(".")] if inner.path else path
        return path, ConfigError(".".join(path), inner.found, inner.expected, inner.remedy)
    if kind == "extra_forbidden":
        if (gone := removed_key(dotted)) is not None:
            return path, gone
        names = [info.alias or name for name, info in fields_at(model, path[:-1], data).items()]
        known = f"one of {listed(names)}" if names else "no such key"
        likely = _axes(path[-1], names) or _owner(path, names) or nearest(path[-1], names)
        return path, ConfigError(dotted, f"the unknown key {path[-1]!r}", known, likely)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return path, _untold(fault, path, model, data)
    if kind == "missing":
        return path, ConfigError(dotted, "nothing", "a value: it is required", "Add it")
    places = {tuple(untagged(each["loc"], data)) for each in faults}
    others = [p for p in places if any(a != b for a, b in zip(p, path, strict=False))]
    more = f" ({len(others)} more to follow)" if others else ""
    likely = f"{remedy(fault)}{more}"
    return path, ConfigError(dotted, shown(fault["input"]), expected(fault), likely)


def _told_best(faults: Sequence[Any], data: Any) -> Any:
    """The first fault; of a value that several kinds were tried for, that of the likeliest kind:
    of a list what is wrong in it, of a number that it is none."""
    first = faults[0]
    path = untagged(first["loc"], data)
    for other in faults[1:]:
        there = untagged(other["loc"], data)
        if there[: len(path)] == path and (
            (len(there) > len(path) and isinstance(first["input"], list))
            or (there == path and (first["type"], other["type"]) in _EITHER)
        ):
            return other
    return first


_EITHER = (("int_parsing", "float_parsing"), ("int_type", "float_type"))


def _untold(
    fault: Mapping[str, Any], path: Sequence[str], model: type[BaseModel], data: Any
) -> ConfigError:
    """A tagged union whose tag (`design`, `name`) is missing or unknown."""
    dotted, context = ".".join(path), fault["ctx"]
    tag = str(context["discriminator"]).strip("'")
    if fault["type"] == "union_tag_not_found":
        known = _tags(model, path, data, tag)
        keys = fault["input"] if isinstance(fault["input"], Mapping) else {}
        close = difflib.get_close_matches(tag, [str(key) for key in keys], n=1) if known else []
        wanted = f"{tag}: one of {listed(known)}" if known else f"a {tag}"
        if close:
            return ConfigError(
                f"{dotted}.{close[0]}",
                f"the unknown key {close[0]!r}",
                wanted,
                f"Did you mean {tag!r}?",
            )
        return ConfigError(dotted, f"no {tag}", wanted, f"Say which {path[-1]} is meant")
    known = [part.strip(" '") for part in str(context["expected_tags"]).split(",")]
    name = str(context["tag"])
    return ConfigError(
        f"{dotted}.{tag}", repr(name), f"one of {listed(known)}", nearest(name, known)
    )


def _axes(key: str, names: Sequence[str]) -> str | None:
    """The remedy for what a study varies, written under the name that another design has for it."""
    own = next((name for name in AXES if name in names), None)
    return f"Did you mean {own!r}?" if key in AXES and own else None


def _owner(path: Sequence[str], names: Sequence[str]) -> str | None:
    """The remedy for an option of another method or loss: whose it is."""
    if difflib.get_close_matches(path[-1], names, n=1, cutoff=0.6):
        return None
    from trainables.trial import TrialConfig

    info = TrialConfig.model_fields.get(path[-2]) if len(path) > 1 else None
    for mark in info.metadata if info else ():
        if isinstance(mark, FromRegistry):
            owners = [n for n in mark.registry if path[-1] in mark.registry[n].Config.model_fields]
            if owners:
                return f"It is an option of {path[-2]} {listed(owners)}"
    return None


def _tags(model: type[BaseModel], path: Sequence[str], data: Any, tag: str) -> list[str]:
    """The names that a tagged union at `path` knows: a field, or a member of a mapping or list."""
    info = fields_at(model, path[:-1], data).get(path[-1]) if path else None
    if info is None and len(path) > 1:
        info = fields_at(model, path[:-2], data).get(path[-2])
    for mark in info.metadata if info else ():
        if isinstance(mark, FromRegistry):
            return list(mark.registry)
    members = _members(info.annotation) if info else ()
    return [str(value) for member in members for value in _told(member, tag)]
