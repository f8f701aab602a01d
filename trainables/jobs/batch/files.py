"""Read and write the files of trials without a driver: cells and results.

Both kinds are JSON lines, and the first line has their digests:

    {"sheet": "cells", "version": 1, "lines": 12, "body": SHA-256, "sha256": SHA-256, "head": {…}}
    {…}
    …

`body` is the digest of everything after the first line, `sha256` that of the first line without it.
`cells` has one job in each line. `result`, in each trial's folder, has the epochs and the last
event. A result may come from a stranger: only regular files are read, values are typed and bounded,
and no code can run.
"""

import hashlib
import json
import math
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from trainables.core import identity
from trainables.core.trial_folder import CONFIG, RESULT, SOURCE
from trainables.jobs.request import Job, JsonSerializable
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError
from trainables.words.files import open_regular, read_regular, write_atomically

VERSION = 1
RESULT_NAME = "result.jsonl"
TRIAL_FILES = (CONFIG, SOURCE, RESULT)  # of a trial's folder, beside its export
MOST_BYTES = 32 * 2**30  # the limit of a trial's file, which is its weights at most
# the limit in bytes of each kind of sheet, and the remedy for a damaged one
SHEETS = {
    "cells": (2**30, "Write the file again with `ablate cells SPEC --to FILE`."),
    "result": (2**26, "Copy the folder again, or remove this file and start the batch again."),
}


def write_sheet(path: Path, kind: str, head: object, lines: Iterable[object]) -> None:
    """Write a sheet atomically: JSON `lines` after a first line with `head` and digests."""
    texts = [_encode(line) for line in lines]
    body = b"".join(text + b"\n" for text in texts)
    first = {"sheet": kind, "version": VERSION, "lines": len(texts), "head": head}
    first["body"] = _hash(body)
    first["sha256"] = _hash(_encode(first))
    write_atomically(path, _encode(first) + b"\n" + body)


def read_sheet(path: Path, kind: str) -> tuple[Any, list[Any]]:
    """Return head and lines of a sheet (`write_sheet`); their types are not checked.

    Raises:
        ConfigError: the file is missing, of another kind or version, truncated or altered.
    """
    most_bytes, remedy = SHEETS[kind]
    fault = "The file was cut off or changed after it was written"
    try:
        # a result may come from a stranger, so it may not be a link
        data = read_regular(path, most_bytes=most_bytes, follow_links=kind == "cells")
        top, _, body = data.partition(b"\n")
        first = json.loads(top)
        first_hash = first.pop("sha256")
        if (first["sheet"], first["version"]) != (kind, VERSION):
            fault = f"The file is a sheet {first['sheet']!r} of version {first['version']!r}"[:200]
        elif (first_hash, first["body"]) == (_hash(_encode(first)), _hash(body)):
            return first["head"], [json.loads(line) for line in body.splitlines()]
    except OSError as error:
        fault = f"There is no file to read ({error.strerror})"
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        fault = "The file is cut off, or it is a file of another kind"
    raise ConfigError(str(path), f"{fault}. A file of kind {kind!r} is needed", remedy)


def _encode(line: object) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(path: Path) -> str:
    """Return the SHA-256 of a regular file; raise OSError at a link or a special file."""
    with open_regular(path, most_bytes=MOST_BYTES, follow_links=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Source(JsonSerializable):
    """The sweep of the trials."""

    sweep_id: str
    name: str
    clean: bool  # whether checkpoints of finished trials are deleted


@dataclass(frozen=True, slots=True)
class Entry(JsonSerializable):
    """One trial, for which `ablate cells` wrote a line."""

    cells: tuple[tuple[str, str], ...]  # (study, cell) pairs
    config_hash: str
    fingerprint: str  # of the data set
    job: Job  # with placeholders of device and folders, which the running machine replaces

    @property
    def trial_id(self) -> str:
        return self.job.trial_id

    def __str__(self) -> str:
        more = f" +{len(self.cells) - 1}" if len(self.cells) > 1 else ""
        return f"{self.trial_id} {'/'.join(self.cells[0])}@{self.job.seed}{more}"


def write_cells(path: Path, source: Source, entries: Iterable[Entry]) -> None:
    """Write a sweep's trials to one file."""
    write_sheet(path, "cells", source.to_dict(), (entry.to_dict() for entry in entries))


def read_cells(path: Path) -> tuple[Source, list[Entry]]:
    """Return the sweep and the trials of a file of cells; ConfigError if other code wrote it."""
    head, lines = read_sheet(path, "cells")
    try:
        return Source.from_dict(head), [Entry.from_dict(line) for line in lines]
    except ConfigError as error:
        raise error.move_to(f"{path}, {error.path}") from None


def check_identity(trial: "Entry | Result") -> TrialConfig:
    """Return a trial's configuration; raise ValueError if it is invalid or another trial's."""
    job = trial.job if isinstance(trial, Entry) else trial  # a result has the job's fields itself
    config = TrialConfig.model_validate(job.config)
    config_hash = identity.compute_config_hash(config, trial.fingerprint)
    trial_id = identity.build_trial_id(config_hash, job.seed)
    if (config_hash, trial_id) != (trial.config_hash, job.trial_id):
        raise ValueError(
            f"The configuration is that of trial {trial_id}, not of trial {job.trial_id}. The "
            "file was edited, or other code wrote it. Write the cells again with `ablate cells`."
        )
    return config


Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
Text = Annotated[str, Field(max_length=100_000)]
Steps = Annotated[int, Field(ge=0, le=2**53)]
Epochs = Annotated[int, Field(ge=1, le=10**7)]
Seconds = Annotated[float, Field(ge=0, le=1e10)]
Number = Annotated[float, Field(allow_inf_nan=True)]  # `check_values` says which may be infinite


class Strict(BaseModel):
    """Base of models without type coercion, in which numbers are finite."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class RecordedCode(Strict, extra="ignore"):
    """The code that ran a trial: component → hash of its source."""

    hashes: Annotated[dict[Name, Name | None], Field(min_length=1, max_length=200)]


class Epoch(Strict):
    event: Literal["epoch"]
    epoch: Epochs
    steps: Steps
    seconds: Seconds
    metrics: Annotated[dict[Name, Number], Field(max_length=2_000)]


class FailedEvent(Strict):
    event: Literal["failed"]
    reason: Text
    traceback: Text = ""


class SplitClasses(Strict):
    """A split's means by class (`evaluation.metrics.ClassMeans`), and a digest of its classes."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    metrics: Annotated[
        dict[
            Name,
            Annotated[
                list[Annotated[list[float], Field(min_length=2, max_length=2)]],
                Field(max_length=1_000_000),
            ],
        ],
        Field(max_length=10),
    ]


class Final(Strict):
    event: Literal["final"]
    best_epoch: Epochs
    epochs: Epochs
    steps: Steps
    seconds: Seconds
    evaluations: dict[
        Literal["train", "val", "test", "ensemble"],
        Annotated[dict[Name, float], Field(max_length=2_000)],
    ]
    classes: dict[Literal["train", "val", "test"], SplitClasses] = {}  # the first versions: none
    evaluator: Name
    export: FileName
    provenance: Annotated[dict[Name, JsonValue], Field(max_length=200)]


class Result(Strict, extra="ignore"):
    """The result of a trial: the head of its file, and its lines as `epochs` and `last`.

    `files` maps names to SHA-256; `code` is None if the driver keeps no source digests.
    """

    trial_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}-s[0-9]{1,19}$")]
    config_hash: Hash
    fingerprint: Name
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    config: dict[str, JsonValue]
    code: RecordedCode | None
    files: Annotated[dict[FileName, Hash], Field(max_length=10)]
    epochs: list[Epoch]
    last: Annotated[Final | FailedEvent, Field(discriminator="event")]

    @property
    def hashes(self) -> dict[str, str | None]:
        """Component → hash of its source; empty if not recorded."""
        return {} if self.code is None else self.code.hashes

    @model_validator(mode="after")
    def check_values(self) -> Self:
        """Check epochs, metrics and file names against the trial's configuration."""
        total, last = check_identity(self).training.epochs, self.last
        epochs, allowed = [epoch.epoch for epoch in self.epochs], {*TRIAL_FILES}
        if epochs != sorted({*epochs}) or any(epoch > total for epoch in epochs):
            raise ValueError(f"The epochs are not in ascending order, or one is above {total}")
        if isinstance(last, Final):
            if last.epochs != total or len(epochs) not in (0, total) or last.best_epoch > total:
                raise ValueError(f"The result does not fit a trial of {total} epochs")
            if last.export not in self.files:
                raise ValueError(f"The result does not list the file of the model, {last.export}")
            allowed.add(last.export)
        if not allowed.issuperset(self.files):
            raise ValueError(
                f"The result lists the files {', '.join(self.files)}, but may list only "
                f"{', '.join(allowed)}"
            )
        for epoch in self.epochs:
            for name, value in epoch.metrics.items():
                if not (math.isfinite(value) or name.startswith("observed/")):  # such as 0/0
                    raise ValueError(f"The metric {name} is {value}, which is no finite number")
        return self


def write_result(folder: Path, entry: Entry, events: Sequence[dict[str, Any]]) -> None:
    """Write the result of a trial, whose other files must have been written before."""
    *epochs, last = events
    history = last.get("history", epochs)  # has also the epochs before an interruption
    last = {name: value for name, value in last.items() if name != "history"}
    job = entry.to_dict()["job"]
    names = [*TRIAL_FILES, last["export"]] if last["event"] == "final" else []
    head = {
        **{name: job[name] for name in ("trial_id", "seed", "config")},
        "config_hash": entry.config_hash,
        "fingerprint": entry.fingerprint,
        "code": job["source"],
        "files": {name: digest(folder / name) for name in names if (folder / name).exists()},
    }
    write_sheet(folder / RESULT_NAME, "result", head, [*history, last])


def read_result(folder: Path) -> Result:
    """Read a trial's result; raise ConfigError if it was altered or has impossible values."""
    path = folder / RESULT_NAME
    head, lines = read_sheet(path, "result")
    values = head if isinstance(head, dict) else {"head": head}  # refused below
    *epochs, last = lines or [None]
    try:
        return Result.model_validate({**values, "epochs": epochs, "last": last})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ", ".join([str(path), *map(str, first["loc"][:9])])  # may be nested deeply
        raise ConfigError(
            field,
            f"{first['msg'].removeprefix('Value error, ')} ({reprlib.repr(first['input'])[:200]})",
            SHEETS["result"][1],
        ) from None
