"""The files of trials without a driver: cells that leave, results that come back.

Both are sheets, JSON lines that vouch for themselves:

    {"sheet": "cells", "version": 1, "lines": 12, "body": SHA-256, "sha256": SHA-256, "head": {…}}
    {…}
    …

`body` is the digest of all bytes after the first line, `sha256` that of the first line without it.
`cells` has one job a line. `result`, one in each trial's folder, has the trial's epochs and how it
ended. A result may be a stranger's: only regular files are read, its values are typed and bounded,
and reading one runs nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from trainables.core import identity
from trainables.core.trial_folder import CONFIG, RESULT, SOURCE
from trainables.errors import ConfigError
from trainables.evaluation.metrics import ACCURACY, find_ranking_metric
from trainables.jobs.request import Job, JsonSerializable
from trainables.machine.files import open_regular, read_regular, write_atomically
from trainables.trial import TrialConfig

VERSION = 1
RESULT_NAME = "result.jsonl"
TRIAL_FILES = (CONFIG, SOURCE, RESULT)  # of a trial's folder, beside its export
MOST_BYTES = 32 * 2**30  # of a file of a trial, which is its weights at most
# Of each kind of sheet: what it is, what to do about a damaged one, and its most bytes.
SHEETS = {
    "cells": ("a file of `ablate cells SPEC --to FILE`", "Copy it again, or write it anew", 2**30),
    "result": (
        "the result of a trial of a batch",
        "Copy the folder again, or remove this file and start the batch again",
        64 * 2**20,
    ),
}


def write_sheet(path: Path, kind: str, head: object, lines: Iterable[object]) -> None:
    """Write a sheet whole or not at all; it is on disk once this returns."""
    texts = [_encode(line) for line in lines]
    body = b"".join(text + b"\n" for text in texts)
    first = {"sheet": kind, "version": VERSION, "lines": len(texts), "head": head}
    first["body"] = hashlib.sha256(body).hexdigest()
    first["sha256"] = hashlib.sha256(_encode(first)).hexdigest()
    write_atomically(path, _encode(first) + b"\n" + body)


def read_sheet(path: Path, kind: str) -> tuple[Any, list[Any]]:
    """Return the head and the lines of a sheet, of whatever types a stranger gave them.

    Raises:
        ConfigError: no file, another kind of file or version, or one that is cut off or altered.
    """
    description, remedy, most_bytes = SHEETS[kind]
    try:
        data = read_regular(path, most_bytes=most_bytes, follow_links=kind == "cells")
        top, _, body = data.partition(b"\n")
        first = json.loads(top)
        seals = first.pop("sha256"), first["body"]
        if (first["sheet"], first["version"]) != (kind, VERSION):
            fault = f"a sheet {first['sheet']!r} of version {first['version']!r}"[:200]
        elif seals == tuple(hashlib.sha256(part).hexdigest() for part in (_encode(first), body)):
            return first["head"], [json.loads(line) for line in body.splitlines()]
        else:
            fault = "a file that was cut off or changed after it was written"
    except OSError as error:
        fault = f"no file to read ({error.strerror})"
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        fault = "a file of another kind, or one that is cut off"
    raise ConfigError(str(path), f"{fault}, not {description}. {remedy}")


def _encode(line: object) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii")


def digest(path: Path) -> str:
    """Return the SHA-256 of a regular file. Raises OSError if it is none, or a link."""
    with open_regular(path, most_bytes=MOST_BYTES, follow_links=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------------------------------ cells


@dataclass(frozen=True, slots=True)
class Source(JsonSerializable):
    """The sweep of the trials. clean: whether a trial's checkpoints go once it has ended."""

    sweep_id: str
    name: str
    clean: bool


@dataclass(frozen=True, slots=True)
class Entry(JsonSerializable):
    """One trial: the (study, cell) pairs that it fills, its identity with the data's, and its job.

    The job's device and folders are placeholders: the machine that runs it sets them.
    """

    cells: tuple[tuple[str, str], ...]
    config_hash: str
    fingerprint: str
    job: Job

    @property
    def trial_id(self) -> str:
        return self.job.trial_id

    @property
    def studies(self) -> set[str]:
        return {study for study, _ in self.cells}

    def __str__(self) -> str:
        more = f" +{len(self.cells) - 1}" if len(self.cells) > 1 else ""
        return f"{self.trial_id} {'/'.join(self.cells[0])}@{self.job.seed}{more}"


def write_cells(path: Path, source: Source, entries: Iterable[Entry]) -> None:
    """Write the trials that leave to one file."""
    write_sheet(path, "cells", source.to_dict(), (entry.to_dict() for entry in entries))


def read_cells(path: Path) -> tuple[Source, list[Entry]]:
    """Return the sweep and the trials of a file.

    Raises:
        ConfigError: it is not as it was written, or was written by other code.
    """
    head, lines = read_sheet(path, "cells")
    try:
        return Source.from_dict(head), [Entry.from_dict(line) for line in lines]
    except ConfigError as error:
        raise error.move_to(f"{path}, {error.path}") from None


def check_identity(trial: Entry | Result) -> TrialConfig:
    """Return a trial's configuration, which must have the identity that is said of it.

    Raises:
        ValueError: no configuration, or that of another trial.
    """
    job = trial.job if isinstance(trial, Entry) else trial
    config = TrialConfig.model_validate(job.config)
    config_hash = identity.compute_config_hash(config, trial.fingerprint)
    trial_id = identity.build_trial_id(config_hash, job.seed)
    if (config_hash, trial_id) != (trial.config_hash, job.trial_id):
        raise ValueError(
            f"the configuration is that of trial {trial_id}, not of trial {job.trial_id}: it was "
            "edited, or other code wrote it; write the cells anew with `ablate cells`"
        )
    return config


# ---------------------------------------------------------------------------------------- results

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
Text = Annotated[str, Field(max_length=100_000)]
Steps = Annotated[int, Field(ge=0, le=2**53)]
Epochs = Annotated[int, Field(ge=1, le=10**7)]
Seconds = Annotated[float, Field(ge=0, le=1e10)]
Number = Annotated[float, Field(allow_inf_nan=True)]  # `check_values` says which may be infinite
Metrics = Annotated[dict[Name, Number], Field(max_length=2_000)]
Names = Annotated[list[Name], Field(max_length=1_000)]


class Strict(BaseModel):
    """A model in which a number is no string, a truth value no number, and all are finite."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class RecordedCode(Strict):
    """The code that ran a trial, as `Code` has it."""

    hashes: Annotated[dict[Name, Name | None], Field(max_length=200)]
    revisions: Annotated[dict[Name, Name], Field(max_length=200)]
    same: Annotated[dict[Name, Names], Field(max_length=200)]


class Epoch(Strict):
    event: Literal["epoch"]
    epoch: Epochs
    steps: Steps
    seconds: Seconds
    metrics: Metrics


class FailedEvent(Strict):
    event: Literal["failed"]
    reason: Text
    traceback: Text = ""


class Final(Strict):
    event: Literal["final"]
    best_epoch: Epochs
    epochs: Epochs
    steps: Steps
    seconds: Seconds
    evaluations: dict[Literal["train", "val", "test"], Metrics]
    evaluator: Name
    export: FileName
    provenance: Annotated[dict[Name, JsonValue], Field(max_length=200)]


class Result(Strict):
    """What a batch made of a trial: the head of its file, and the lines as `epochs` and `last`.

    sweep_id: of the sweep that asked for it. evaluate, metrics: what was asked for. code: what ran
    it, if the driver keeps that. files: name → SHA-256.
    """

    sweep_id: Name
    trial_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}-s[0-9]{1,19}$")]
    config_hash: Hash
    fingerprint: Name
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    config: dict[str, JsonValue]
    evaluate: Names
    metrics: Names
    code: RecordedCode | None
    files: Annotated[dict[FileName, Hash], Field(max_length=10)]
    epochs: list[Epoch]
    last: Annotated[Final | FailedEvent, Field(discriminator="event")]

    @property
    def hashes(self) -> dict[str, str | None]:
        """Component → hash of its source; empty if nobody said."""
        return {} if self.code is None else self.code.hashes

    @model_validator(mode="after")
    def check_values(self) -> Self:
        """Raise ValueError for what no trial of this configuration tells."""
        most, last = check_identity(self).training.epochs, self.last
        numbers, steps = ([getattr(e, key) for e in self.epochs] for key in ("epoch", "steps"))
        if any(b <= a for a, b in pairwise(numbers)) or numbers[-1:] > [most]:
            raise ValueError(f"the epochs do not rise to {most}")
        if any(b < a for a, b in pairwise(steps)):
            raise ValueError("steps fall from one epoch to the next")
        metrics = [pair for epoch in self.epochs for pair in epoch.metrics.items()]
        names = {*TRIAL_FILES}
        if isinstance(last, Final):
            if last.epochs != most or numbers not in ([], [*range(1, most + 1)]):
                raise ValueError(f"it ended after {last.epochs} epochs of {most}")
            if last.best_epoch > most or last.export not in self.files:
                raise ValueError("its best epoch is none of its epochs, or has no weights")
            names.add(last.export)
            for split, values in last.evaluations.items():
                metrics += [(f"{split}/{name}", value) for name, value in values.items()]
        for name, value in metrics:
            _check_metric(name, value)
        if not names.issuperset(self.files):
            raise ValueError(f"its files are {', '.join(self.files)}, not {', '.join(names)}")
        return self


def _check_metric(name: str, value: float) -> None:
    """Raise ValueError for a value that a metric cannot have; a mean of shares may round up."""
    split, _, metric = name.rpartition("/")
    is_share = metric in ("nmi", "f1", *ACCURACY) or find_ranking_metric(metric) is not None
    is_score = is_share and split in ("train", "val", "test", "best")
    is_fit = math.isfinite(value) and (not is_score or -1e-6 <= value <= 1 + 1e-6)
    if not is_fit and not name.startswith("observed/"):
        raise ValueError(f"{name} is {value}, which it cannot be")


def write_result(
    folder: Path, source: Source, entry: Entry, events: Sequence[dict[str, Any]]
) -> None:
    """Write the result of a trial, whose events are given, after all files that it names."""
    *epochs, end = events
    last = {name: value for name, value in end.items() if name != "history"}
    job = entry.to_dict()["job"]
    names = [*TRIAL_FILES, last["export"]] if last["event"] == "final" else []
    head = {
        **{name: job[name] for name in ("trial_id", "seed", "config", "evaluate", "metrics")},
        "sweep_id": source.sweep_id,
        "config_hash": entry.config_hash,
        "fingerprint": entry.fingerprint,
        "code": job["source"],
        "files": {name: digest(folder / name) for name in names if (folder / name).exists()},
    }
    write_sheet(folder / RESULT_NAME, "result", head, [*end.get("history", epochs), last])


def read_result(folder: Path) -> Result:
    """Read the result in a trial's folder.

    Raises:
        ConfigError: it is not as it was written, or says what no trial can.
    """
    path = folder / RESULT_NAME
    head, lines = read_sheet(path, "result")
    values = head if isinstance(head, dict) else {"head": head}
    *epochs, last = lines or [None]
    try:
        return Result.model_validate({**values, "epochs": epochs, "last": last})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ", ".join([str(path), *map(str, first["loc"][:9])])
        message = first["msg"].removeprefix("Value error, ")
        fault = f"{message} ({reprlib.repr(first['input'])[:200]})"
        raise ConfigError(where, f"{fault}. {SHEETS['result'][1]}") from None
