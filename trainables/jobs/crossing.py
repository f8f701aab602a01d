"""How an object crosses from process to process: as plain values, checked where they arrive.

Both ends have the same class, but not always of the same code: a worker on another machine may
have an older one. So what arrives must have every field and none besides, at any depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from trainables.errors import ConfigError


class Crosses:
    """Base of dataclasses whose fields are plain, paths, or dataclasses likewise."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values: of a path its text, of a tuple a list."""
        plain: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")
        return plain

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """What `to_dict` gave.

        Raises:
            ConfigError: a field that is missing or unknown, or a value of another type.
        """
        where = cls.__name__.lower()
        try:
            made: Self = _adapter(cls).validate_python(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(map(str, (where, *first["loc"])))
            if first["type"] == "missing":
                raise _other_fields(path.rpartition(".")[0], "no", first["loc"][-1:]) from None
            raise ConfigError(path, repr(first["input"])[:200], first["msg"].lower()) from None
        _same_fields(given, made.to_dict(), where)
        return made


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(cls: type) -> TypeAdapter[Any]:
    if cls not in _adapters:
        _adapters[cls] = TypeAdapter(cls)
    return _adapters[cls]


def _same_fields(given: Any, whole: Any, where: str) -> None:
    """That what was given names all fields itself, those with a default too."""
    if isinstance(whole, dict):
        if unknown := [name for name in given if name not in whole]:
            raise _other_fields(where, "the unknown", unknown)
        if missing := [name for name in whole if name not in given]:
            raise _other_fields(where, "no", missing)
        for name, value in whole.items():
            _same_fields(given[name], value, f"{where}.{name}")
    elif isinstance(whole, list):
        for i, value in enumerate(whole):
            _same_fields(given[i], value, f"{where}.{i}")


def _other_fields(where: str, which: str, names: Any) -> ConfigError:
    return ConfigError(
        where,
        f"{which} {', '.join(map(str, names))}",
        "the fields that this code has",
        "Put the same code on every machine",
    )
