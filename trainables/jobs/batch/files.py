"""The files of trials without a driver: cells that leave, results that come back.

All are JSON lines that vouch for themselves:

    {"sheet": "cells", "version": 1, "lines": 12, "body": SHA-256, "sha256": SHA-256, "head": {…}}
    {…}
    …

`body` is the digest of all bytes after the first line, `sha256` that of the first line without it.
`cells` is what `ablate cells` writes, one job a line. `result`, one in each trial's folder, holds
the trial's epochs and how it ended, and names its other files with their digests. `batch` marks the
folder of results with its sweep. A result may be a stranger's: only regular files are read, its
values are typed and bounded, and reading one runs nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from trainables.core import identity
from trainables.core import trial_folder as folders
from trainables.errors import ConfigError
from trainables.evaluation.metrics import ACCURACY, ranking_metric
from trainables.jobs.request import Crosses, Job
from trainables.machine.files import open_regular, read_regular, write_atomically
from trainables.trial import TrialConfig

Event = dict[str, Any]

VERSION = 1
RESULT_NAME, BATCH_NAME = "result.jsonl", "batch.jsonl"
TRIAL_FILES = (
    folders.CONFIG,
    folders.SOURCE,
    folders.RESULT,
)  # of a trial's folder, and its export
MOST_BYTES = 32 * 2**30  # of a file of a trial, which is its weights at most
MOST_DEPTH = 50  # of nested values: deeper ones end whoever walks through them


# ----------------------------------------------------------------------------------------- sheets


@dataclass(frozen=True)
class Kind:
    """One kind of sheet: its name, what it is in words, and what to do about a damaged one."""

    name: str
    what: str
    remedy: str
    most_bytes: int = 2**30
    follow_links: bool = True


CELLS = Kind(
    "cells",
    "a file that `ablate cells SPEC --to FILE` has written",
    "Copy it again, or write it anew with `ablate cells`; to run a part of it give --shard",
)
RESULT = Kind(
    "result",
    "the result of a trial of a batch",
    "Copy the folder again, or remove this file and start the batch again: it writes it anew",
    most_bytes=64 * 2**20,
    follow_links=False,
)
BATCH = Kind(
    "batch",
    "the folder of a batch (`python -m trainables.jobs.batch CELLS --out DIR`)",
    "Name that folder, or copy it again",
    most_bytes=2**16,
    follow_links=False,
)


def write_sheet(
    path: Path, kind: Kind, head: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]
) -> None:
    """Write a sheet whole or not at all; it is on disk once this returns."""
    texts = [_encode(line) for line in lines]
    body = b"".join(text + b"\n" for text in texts)
    first = {
        "sheet": kind.name,
        "version": VERSION,
        "lines": len(texts),
        "body": hashlib.sha256(body).hexdigest(),
        "head": head,
    }
    first["sha256"] = hashlib.sha256(_encode(first)).hexdigest()
    write_atomically(path, _encode(first) + b"\n" + body)


def read_sheet(path: Path, kind: Kind) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the head and the lines of a sheet.

    Raises:
        ConfigError: no file, another kind of file, a newer one, or one that is cut off or altered.
    """

    def refuse(found: str, expected: str = kind.what, remedy: str = kind.remedy) -> ConfigError:
        return ConfigError(str(path), found, expected, remedy)

    try:
        data = read_regular(path, most_bytes=kind.most_bytes, follow_links=kind.follow_links)
    except OSError as error:
        raise refuse(f"no file to read ({error.strerror})") from None
    top, _, body = data.partition(b"\n")
    try:
        first = json.loads(top)
        seal, name, version = first.pop("sha256"), first["sheet"], first["version"]
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        raise refuse("a file of another kind, or one that is cut off") from None
    if name != kind.name:
        raise refuse(f"a sheet of {name!r}"[:200])
    if version != VERSION:
        raise refuse(
            f"version {version!r} of its format"[:200],
            f"version {VERSION}",
            "Put the same ablate on both machines",
        )
    digests = hashlib.sha256(_encode(first)).hexdigest(), hashlib.sha256(body).hexdigest()
    if digests != (seal, first.get("body")):
        raise refuse("a file that was cut off or changed after it was written")
    try:
        values = [first.get("head"), *map(json.loads, body.splitlines())]
        for value in values:
            if not isinstance(value, dict):
                raise ValueError(f"{str(value)[:50]!r}")
            _check_depth(value)
    except (ValueError, RecursionError) as error:
        raise refuse(f"a line that is no JSON object ({error})", "lines of objects") from None
    return values[0], values[1:]


def _encode(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii")


def _check_depth(value: Any, depth: int = MOST_DEPTH) -> None:
    if isinstance(value, dict | list):
        if depth == 0:
            raise ValueError(f"values nested more than {MOST_DEPTH} deep")
        for part in value.values() if isinstance(value, dict) else value:
            _check_depth(part, depth - 1)


# ------------------------------------------------------------------------------------------ cells


@dataclass(frozen=True, slots=True)
class Source(Crosses):
    """The sweep that the trials belong to, and what wrote the file.

    clean: whether a trial's checkpoints go once it has ended. provenance: versions and commit.
    """

    sweep_id: str
    name: str
    clean: bool
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place(Crosses):
    """A cell that a trial fills."""

    study: str
    cell: str
    fold: int | None


@dataclass(frozen=True, slots=True)
class Entry(Crosses):
    """One trial: its cells, its identity with the data's, and its job.

    In the file the job's device and folders are placeholders: the machine that runs it sets them.
    """

    places: tuple[Place, ...]
    config_hash: str
    fingerprint: str
    job: Job

    @property
    def trial_id(self) -> str:
        return self.job.trial_id

    def __str__(self) -> str:
        first = self.places[0]
        more = f" +{len(self.places) - 1}" if len(self.places) > 1 else ""
        fold = "" if first.fold is None else f".{first.fold}"
        return f"{self.trial_id} {first.study}/{first.cell}@{self.job.seed}{fold}{more}"


def write_cells(path: Path, source: Source, entries: Sequence[Entry]) -> None:
    """Write the trials that leave to one file."""
    write_sheet(path, CELLS, source.to_dict(), (entry.to_dict() for entry in entries))


def read_cells(path: Path) -> tuple[Source, list[Entry]]:
    """Return the sweep and the trials of a file.

    Raises:
        ConfigError: it is not as it was written, or was by other code.
    """
    head, lines = read_sheet(path, CELLS)
    try:
        return Source.from_dict(head), [Entry.from_dict(line) for line in lines]
    except ConfigError as error:
        raise ConfigError(
            f"{path}, {error.path}", error.found, error.expected, error.remedy
        ) from None


def check_identity(place: str, given: Result | Entry) -> TrialConfig:
    """Return the configuration of a trial, which must have the identity that is said of it.

    Raises:
        ConfigError: no configuration, or that of another trial; `place` says where.
    """
    config, seed = (
        (given.config, given.seed)
        if isinstance(given, Result)
        else (
            given.job.config,
            given.job.seed,
        )
    )
    remedy = "It was edited or is of other code: put the same code on both machines"
    try:
        resolved = TrialConfig.model_validate(config)
    except ValidationError as error:
        raise _faulty(place, error, remedy) from None
    here = identity.config_hash(resolved, given.fingerprint)
    if (here, identity.trial_id(here, seed)) != (given.config_hash, given.trial_id):
        raise ConfigError(
            place,
            f"a configuration that is trial {identity.trial_id(here, seed)}",
            f"trial {given.trial_id}, which it is said to be",
            f"{remedy}, and write the cells anew with `ablate cells`",
        )
    return resolved


# ---------------------------------------------------------------------------------------- results

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
Text = Annotated[str, StringConstraints(max_length=100_000)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Metrics = Annotated[dict[Name, float], Field(max_length=2_000)]
Names = Annotated[list[Name], Field(max_length=1_000)]


class Strict(BaseModel):
    """A model in which a number is no string and a truth value no number."""

    model_config = ConfigDict(strict=True, extra="forbid")


class RecordedCode(Strict):
    """The code that ran a trial, as `Code` has it."""

    hashes: Annotated[dict[Name, Name | None], Field(max_length=200)]
    revisions: Annotated[dict[Name, Name], Field(max_length=200)]
    same: Annotated[dict[Name, Names], Field(max_length=200)]


class Result(Strict):
    """Which trial a result is of: the head of its file.

    config: as the driver resolved it. evaluate, metrics: what was asked for. code: what ran it, if
    the driver keeps that. files: name → SHA-256.
    """

    sweep_id: Name
    trial_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}-s[0-9]{1,19}$")]
    config_hash: Hash
    fingerprint: Name
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    config: dict[str, Any]
    evaluate: Names
    metrics: Names
    code: RecordedCode | None
    files: Annotated[dict[FileName, Hash], Field(max_length=10)]


class Epoch(Strict):
    """An epoch; what a method observes beside its terms may be infinite or not a number."""

    event: Literal["epoch"]
    epoch: Annotated[int, Field(ge=1, le=10**7)]
    steps: Count
    seconds: Seconds
    metrics: Metrics

    @model_validator(mode="after")
    def check_metrics(self) -> Self:
        for name, value in self.metrics.items():
            if not name.startswith("observed/"):
                is_score = name.startswith(("train/", "val/", "test/", "best/"))
                check_value(name.rpartition("/")[2] if is_score else "", name, value)
        return self


class Failed(Strict):
    """How a trial ended that cannot succeed."""

    event: Literal["failed"]
    reason: Text
    traceback: Text = ""


class Final(Strict):
    """How a trial ended that succeeded."""

    event: Literal["final"]
    best_epoch: Annotated[int, Field(ge=1)]
    epochs: Annotated[int, Field(ge=1, le=10**7)]
    steps: Count
    seconds: Seconds
    evaluations: dict[Literal["train", "val", "test"], Metrics]
    evaluator: Name
    export: FileName
    provenance: Annotated[dict[Name, Any], Field(max_length=200)]

    @model_validator(mode="after")
    def check_values(self) -> Self:
        if self.best_epoch > self.epochs:
            raise ValueError(f"the best epoch, {self.best_epoch}, is none of {self.epochs}")
        for split, metrics in self.evaluations.items():
            for name, value in metrics.items():
                check_value(name, f"{split}/{name}", value)
        try:
            json.dumps(self.provenance, allow_nan=False)
        except ValueError:
            raise ValueError("provenance has a number that is not finite") from None
        return self


def check_value(metric: str, name: str, value: float) -> None:
    """Raise ValueError for a value that the metric cannot have; a mean of shares may round up."""
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, which is no finite number")
    share = metric in ("nmi", "f1", *ACCURACY) or ranking_metric(metric) is not None
    if share and not -1e-6 <= value <= 1 + 1e-6:
        raise ValueError(f"{name} is {value}, which is not between 0 and 1")


def check_course(epochs: Sequence[Event], last: Event, most: int) -> None:
    """Raise ValueError for epochs that no trial of `most` epochs has told."""
    numbers, steps = [each["epoch"] for each in epochs], [each["steps"] for each in epochs]
    if any(later <= earlier for earlier, later in pairwise(numbers)) or numbers[-1:] > [most]:
        raise ValueError(f"epochs that do not rise to {most}")
    if any(later < earlier for earlier, later in pairwise(steps)):
        raise ValueError("steps that fall from one epoch to the next")
    whole = list(range(1, most + 1))
    if last["event"] == "final" and (last["epochs"] != most or numbers not in ([], whole)):
        raise ValueError(f"a result after {last['epochs']} epochs, {len(numbers)} told, of {most}")


_LAST: TypeAdapter[Final | Failed] = TypeAdapter(Annotated[Final | Failed, Discriminator("event")])


def write_result(
    folder: Path, source: Source, entry: Entry, epochs: Iterable[Event], last: Event
) -> None:
    """Write the result of a trial to its folder, after all the files that it names.

    Args:
        last: the "final" or "failed" event.
    """
    job = entry.job
    names = [*TRIAL_FILES, last["export"]] if last["event"] == "final" else []
    head = {
        "sweep_id": source.sweep_id,
        "trial_id": job.trial_id,
        "config_hash": entry.config_hash,
        "fingerprint": entry.fingerprint,
        "seed": job.seed,
        "config": job.config,
        "evaluate": job.evaluate,
        "metrics": job.metrics,
        "code": entry.to_dict()["job"]["source"],
        "files": {name: digest(folder / name) for name in names if (folder / name).exists()},
    }
    ended = {name: value for name, value in last.items() if name != "history"}
    write_sheet(folder / RESULT_NAME, RESULT, head, [*epochs, ended])


def read_result(folder: Path) -> tuple[Result, list[Event], Event]:
    """Return which trial a result is of, its epochs, and its last event.

    Raises:
        ConfigError: it is not as it was written, or says what no trial can.
    """
    path = folder / RESULT_NAME
    head, lines = read_sheet(path, RESULT)
    try:
        result = Result.model_validate(head)
        for line in lines[:-1]:
            Epoch.model_validate(line)
        _LAST.validate_python(lines[-1] if lines else {})
    except ValidationError as error:
        raise _faulty(str(path), error, RESULT.remedy) from None
    return result, lines[:-1], lines[-1]


def _faulty(place: str, error: ValidationError, remedy: str) -> ConfigError:
    first = error.errors(include_url=False)[0]
    where = ", ".join(filter(None, [place, ".".join(map(str, first["loc"]))]))
    return ConfigError(where, repr(first["input"])[:200], first["msg"].lower(), remedy)


def trial_folder(folder: Path, trial_id: str) -> Path:
    """Return the folder of a trial in a batch's folder."""
    return folders.trial_folder(folder / folders.TRIALS, trial_id)


def digest(path: Path) -> str:
    """Return the SHA-256 of a regular file.

    Raises:
        OSError: it is none, or a link.
    """
    with open_regular(path, most_bytes=MOST_BYTES, follow_links=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mark_folder(folder: Path, source: Source) -> None:
    """Make a folder this sweep's.

    Raises:
        ConfigError: it is another's.
    """
    if not (folder / BATCH_NAME).exists():
        head = {"sweep_id": source.sweep_id, "name": source.name}
        write_sheet(folder / BATCH_NAME, BATCH, head, [])
    sweep_id, name = read_mark(folder)
    if sweep_id != source.sweep_id:
        raise ConfigError(
            str(folder),
            f"the folder of sweep {name} ({sweep_id})",
            f"one of sweep {source.name} ({source.sweep_id}), or a new one",
            "Give another --out",
        )


def read_mark(folder: Path) -> tuple[str, str]:
    """Return the id and the name of the sweep that a batch's folder belongs to.

    Raises:
        ConfigError: it is no folder of a batch.
    """
    head = read_sheet(folder / BATCH_NAME, BATCH)[0]
    if not all(isinstance(head.get(name), str) for name in ("sweep_id", "name")):
        raise ConfigError(str(folder / BATCH_NAME), f"{head!r}"[:200], BATCH.what, BATCH.remedy)
    return head["sweep_id"], head["name"]
