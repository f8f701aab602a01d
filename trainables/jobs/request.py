"""What a worker is asked to do, as it crosses from process to process: jobs, and views of models.

The folder of a trial says how far it got, so the same job may be given again after anything that
happened. Plain values cross and are checked where they arrive: a worker on another machine may have
older code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trainables.core.code_version import Code
from trainables.core.runtime import Runtime
from trainables.core.trial_folder import TrialFolder
from trainables.errors import ConfigError

Mode = Literal["train", "evaluate", "ensemble"]


class JsonSerializable:
    """Base of dataclasses whose fields are plain, paths, or dataclasses likewise."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values: of a path its text, of a tuple a list."""
        values: dict[str, Any] = _build_adapter(type(self)).dump_python(self, mode="json")
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `to_dict` gave.

        Raises:
            ConfigError: a field that is missing or unknown, or a value of another type.
        """
        try:
            instance: Self = _build_adapter(cls).validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(map(str, (cls.__name__.lower(), *first["loc"])))
            value = repr(first["input"])[:200]
            raise ConfigError(
                path, f"{first['msg']}, not {value}: put the same code on every machine"
            ) from None
        return instance


_adapters: dict[type, TypeAdapter[Any]] = {}


def _build_adapter(cls: type) -> TypeAdapter[Any]:
    if cls not in _adapters:
        _adapters[cls] = TypeAdapter(cls)
    return _adapters[cls]


@dataclass(frozen=True, slots=True)
class Fold(JsonSerializable):
    """One trained member of an ensemble: its trial's configuration and seed, and its weights."""

    config: Mapping[str, Any]
    seed: int
    export: Path


@dataclass(frozen=True, slots=True)
class Job(JsonSerializable):
    """One trial's next piece of work.

    trial_id: for logs; the trial's folder is `runtime.trial_dir`.
    config: the whole `TrialConfig`, as JSON has it; the runner checks it.
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


# ------------------------------------------------------------------------------- jobs of a driver


@dataclass(frozen=True, slots=True)
class Leader(JsonSerializable):
    """The process without which workers end. start: seconds since the epoch."""

    host: str
    pid: int
    start: float


@dataclass(frozen=True, slots=True)
class Storage(JsonSerializable):
    """Where checkpoints of trials go, so that another node can go on from them.

    uri: of the storage, as pyarrow takes it.
    own_folder: whether a trial runs in a folder of its node's own, as nodes share none.
    checkpoints: trial → folders of its checkpoints in storage, the newest first: of the job's own
        trial, and of those whose weights it reads.
    """

    uri: str
    own_folder: bool
    checkpoints: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Payload(JsonSerializable):
    """A job and how it is run.

    runner: `module:function`, a generator of events.
    clean: whether the core's checkpoints go once the trial has ended.
    gather: seconds for which a worker gathers what a trial tells before it passes that on.
    fingerprint: of the driver's data set, which the node must have as well; None: no data is read,
        or this is the driver's own machine.
    storage: None, where a trial's folder is the one place of its files.
    """

    job: Job
    runner: str
    clean: bool
    driver: Leader
    gather: float = 1.0
    fingerprint: str | None = None
    storage: Storage | None = None

    def to_text(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ConfigError: it was written by other code."""
        return cls.from_dict(json.loads(text))


# -------------------------------------------------------------------------------- views of models


@dataclass(frozen=True, slots=True)
class View(JsonSerializable):
    """What a figure reads of a model. name: of its file. kind: of `views.embedded.VIEWS`."""

    name: str
    kind: str
    options: Mapping[str, Any]

    def locate_file(self, trial: Path) -> Path:
        """Return its file in a trial's folder."""
        return TrialFolder(trial).locate_view(self.name)


@dataclass(frozen=True, slots=True)
class ViewOptions(JsonSerializable):
    """The views of one finished trial's model."""

    folder: Path
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Request(JsonSerializable):
    """device, threads, cache: as a trial's `Runtime` has them."""

    trials: tuple[ViewOptions, ...]
    device: str
    threads: int | None
    cache: Path
