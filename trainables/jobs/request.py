"""Define the requests that processes send to workers: jobs, and views of trained models."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trainables.core.components import Code
from trainables.core.runtime import VIEWS, Runtime
from trainables.words.errors import ConfigError

Mode = Literal["train", "evaluate", "ensemble"]


class JsonSerializable:
    """Base of dataclasses that are sent as JSON; fields are plain values, paths or such classes."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON-able values; a path becomes a text, a tuple a list."""
        values: dict[str, Any] = _build_adapter(type(self)).dump_python(self, mode="json")
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build an instance from the output of `to_dict`, which older code may have written.

        Raises:
            ConfigError: a field is missing or unknown, or its value has another type.
        """
        try:
            instance: Self = _build_adapter(cls).validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(map(str, (cls.__name__.lower(), *first["loc"])))
            raise ConfigError(
                path,
                f"The value {repr(first['input'])[:200]} is not valid ({first['msg']})",
                "Put the same code on every machine",
            ) from None
        return instance


_adapters: dict[type, TypeAdapter[Any]] = {}  # mypy refuses classes as arguments of `cache`


def _build_adapter(cls: type) -> TypeAdapter[Any]:
    if cls not in _adapters:
        _adapters[cls] = TypeAdapter(cls)
    return _adapters[cls]


@dataclass(frozen=True, slots=True)
class Fold(JsonSerializable):
    """A trained member of an ensemble: its configuration, seed and file of weights."""

    config: Mapping[str, Any]
    seed: int
    export: Path


@dataclass(frozen=True, slots=True)
class Job(JsonSerializable):
    """Work on one trial, whose folder is `runtime.trial_dir`.

    Mode "train" runs or resumes the trial. "evaluate" computes missing metrics from its export.
    "ensemble" evaluates the concatenated embeddings of `members` as split "ensemble" of this trial.
    """

    trial_id: str  # for logs
    config: Mapping[str, Any]  # the complete `TrialConfig` as JSON; the runner validates it
    seed: int
    runtime: Runtime
    evaluate: tuple[str, ...] = ("val",)  # splits: "val", "test", "train" or "ensemble"
    metrics: tuple[str, ...] = ()  # besides those of the task
    mode: Mode = "train"
    until: int | None = None  # epoch, from 1, after which the trial pauses; None: at the end
    members: tuple[Fold, ...] = ()  # of an ensemble, in the order of the folds
    source: Code | None = None  # the driver's code, which must equal the worker's; None: any


@dataclass(frozen=True, slots=True)
class Leader(JsonSerializable):
    """The driver's process, with which its workers end; `start` is in seconds since the epoch."""

    host: str
    pid: int
    start: float


@dataclass(frozen=True, slots=True)
class CheckpointStorage(JsonSerializable):
    """Storage of checkpoints, from which another node can resume a trial.

    `checkpoints` maps the job's trial, and those whose weights it reads, to the folders of their
    checkpoints in the storage, newest first.
    """

    uri: str  # the storage's address, for pyarrow
    own_folder: bool  # whether trials run in a local folder of the node, because nodes share none
    checkpoints: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Payload(JsonSerializable):
    """A job with all that a worker needs to run it."""

    job: Job
    runner: str  # `module:function`, a generator function of events
    clean: bool  # whether to delete the checkpoints once the trial has ended
    driver: Leader  # the process with which the worker ends
    gather: float = 1.0  # seconds for which a worker collects events before it sends them
    fingerprint: str | None = None  # of the driver's data set, which the node's must equal
    storage: CheckpointStorage | None = (
        None  # of checkpoints; None if they stay in the trial's folder
    )

    def to_text(self) -> str:
        """Serialise to JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `to_text` returned; raise ConfigError if other code wrote it."""
        return cls.from_dict(json.loads(text))


@dataclass(frozen=True, slots=True)
class View(JsonSerializable):
    """Data that a figure needs from a model; `kind` is a name in `views.embedded.VIEWS`."""

    name: str
    kind: str
    options: Mapping[str, Any]

    def locate_file(self, trial: Path) -> Path:
        """Return the view's file in a trial's folder."""
        return trial / VIEWS / f"{self.name}.json"


@dataclass(frozen=True, slots=True)
class TrialViews(JsonSerializable):
    """The views to compute from one finished trial's model."""

    folder: Path
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class ViewsRequest(JsonSerializable):
    """Views to compute, and where; of `runtime` device, threads and cache count."""

    trials: tuple[TrialViews, ...]
    runtime: Runtime
