"""What a worker is asked to do: the job, as the driver makes it and every runner takes it.

The folder of the trial says how far it got, so the same job may be given again after anything
that happened. It crosses from process to process as plain values, checked where they arrive: both
ends have the same class, but not always of the same code, for a worker on another machine may have
an older one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from trainables.core.code_version import Code
from trainables.core.runtime import Runtime
from trainables.errors import ConfigError

Mode = Literal["train", "evaluate", "ensemble"]


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


@dataclass(frozen=True, slots=True)
class Fold(Crosses):
    """One trained member of an ensemble.

    config: of its trial, as JSON has it. export: the file of its weights.
    """

    config: Mapping[str, Any]
    seed: int
    export: Path


@dataclass(frozen=True, slots=True)
class Job(Crosses):
    """One trial's next piece of work.

    trial_id: the trial's, for logs; its folder is `runtime.trial_dir`.
    config: the whole `TrialConfig`, as JSON has it; the runner checks it.
    seed: of all the trial's streams.
    runtime: where and how it runs; seconds and paths as `Runtime` says.
    evaluate: splits to be read at the end, "val", "test", "train" or "ensemble".
    metrics: read of each of them besides those of its task.
    mode: "train" runs or continues the trial. "evaluate" trains nothing: with the trial's export
        it reads what is asked for and was not read before. "ensemble" reads the embeddings of
        `members` side by side, as split "ensemble" of this trial.
    until: the epoch, from 1, after which it is to pause; None: it goes to its end.
    members: of an ensemble, in the order of their folds; of another job none.
    source: the code that the driver has, if it is to be the same here.
    """

    trial_id: str
    config: Mapping[str, Any]
    seed: int
    runtime: Runtime
    evaluate: tuple[str, ...] = ("val",)
    metrics: tuple[str, ...] = ()
    mode: Mode = "train"
    until: int | None = None
    members: tuple[Fold, ...] = ()
    source: Code | None = None
