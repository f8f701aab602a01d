"""What a batch leaves of a trial, for `ablate ledger import`: `trials/<trial_id>/result.jsonl`.

Its head says which trial it is, what code ran it and which files belong to it; its lines are the
epochs and, at last, how it ended. It is written once the trial has ended, after all that it names.
The weights are safetensors; nothing that is imported can run code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, TypeAdapter, ValidationError

from trainables.core import trial_folder as folders
from trainables.core.code_version import Code
from trainables.errors import ConfigError
from trainables.jobs.batch.cells import Entry, Source
from trainables.jobs.batch.outcome import (
    EpochModel,
    FailedModel,
    FinalModel,
    ResultModel,
)
from trainables.jobs.batch.sheet import Kind, read_sheet, write_sheet
from trainables.jobs.crossing import Crosses
from trainables.machine.files import open_regular

Event = dict[str, Any]

RESULT = Kind(
    "result",
    1,
    "the result of a trial of a batch",
    "Copy the folder again, or remove this file and start the batch again: it writes it anew",
    most_bytes=64 * 2**20,
    follow_links=False,
)
MARK = Kind(
    "batch",
    1,
    "the folder of a batch (`python -m trainables.jobs.batch CELLS --out DIR`)",
    "Name that folder, or copy it again",
    most_bytes=2**16,
    follow_links=False,
)
_LAST: TypeAdapter[FinalModel | FailedModel] = TypeAdapter(
    Annotated[FinalModel | FailedModel, Discriminator("event")]
)
NAME = "result.jsonl"
MARK_NAME = "batch.jsonl"
MOST_BYTES = 32 * 2**30  # of a file of a trial, which is its weights at most
FILES = ("config.json", "source.json", "final.json")  # of a trial's folder, and its export


@dataclass(frozen=True, slots=True)
class Result(Crosses):
    """Which trial it is.

    config: as the driver resolved it. evaluate, metrics: what was asked for. code: what ran it, if
    the driver keeps that. files: name → SHA-256.
    """

    sweep_id: str
    trial_id: str
    config_hash: str
    fingerprint: str
    seed: int
    config: Mapping[str, Any]
    evaluate: tuple[str, ...]
    metrics: tuple[str, ...]
    code: Code | None
    files: Mapping[str, str]

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "sweep_id": self.sweep_id,
            "trial_id": self.trial_id,
            "config_hash": self.config_hash,
            "fingerprint": self.fingerprint,
            "seed": self.seed,
        }


def trial_folder(folder: Path, trial_id: str) -> Path:
    return folders.trial_folder(folder / folders.TRIALS, trial_id)


def write_result(
    folder: Path, source: Source, entry: Entry, epochs: Iterable[Event], last: Event
) -> None:
    """folder: of the trial. last: "final" or "failed"."""
    job = entry.job
    names = [*FILES, last["export"]] if last["event"] == "final" else []
    result = Result(
        sweep_id=source.sweep_id,
        trial_id=job.trial_id,
        config_hash=entry.config_hash,
        fingerprint=entry.fingerprint,
        seed=job.seed,
        config=job.config,
        evaluate=job.evaluate,
        metrics=job.metrics,
        code=job.source,
        files={name: digest(folder / name) for name in names if (folder / name).exists()},
    )
    ended = {name: value for name, value in last.items() if name != "history"}
    write_sheet(folder / NAME, RESULT, result.to_dict(), [*epochs, ended])


def read_result(folder: Path) -> tuple[Result, list[Event], Event]:
    """Which trial, its epochs, and its last event.

    Raises:
        ConfigError: it is not as it was written, or was by other code.
    """
    path = folder / NAME
    head, lines = read_sheet(path, RESULT)
    try:
        ResultModel.model_validate(head)
        for line in lines[:-1]:
            EpochModel.model_validate(line)
        _LAST.validate_python(lines[-1] if lines else {})
        result = Result.from_dict(head)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ", ".join([str(path), ".".join(map(str, first["loc"]))]).rstrip(", ")
        raise ConfigError(
            where, repr(first["input"])[:200], first["msg"].lower(), RESULT.remedy
        ) from None
    except ConfigError as error:
        raise ConfigError(
            f"{path}, {error.path}", error.found, error.expected, error.remedy
        ) from None
    return result, lines[:-1], lines[-1]


def known(folder: Path, source: Source, entry: Entry) -> Event | None:
    """The last event of a trial that has ended in this folder, with all that is asked for now.

    None: it has not, its result is damaged (its files say then how far it is), or other code made
    it.

    Raises:
        ConfigError: the result of another trial.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        result, _, last = read_result(folder)
    except ConfigError:
        return None  # it is written anew, from what lies beside it
    wanted = {
        "sweep_id": source.sweep_id,
        "trial_id": entry.trial_id,
        "config_hash": entry.config_hash,
        "fingerprint": entry.fingerprint,
        "seed": entry.job.seed,
    }
    if result.identity != wanted:
        raise ConfigError(
            str(path), f"the result of {result.identity}", f"that of {wanted}", "Give another --out"
        )
    if not _of_this_code(result, entry):
        return None
    if last["event"] == "final":
        asked, read = {*entry.job.metrics}, last["evaluations"]
        if not all(split in read and asked <= read[split].keys() for split in entry.job.evaluate):
            return None
        if not all((folder / name).exists() for name in result.files):
            return None
    return last


def _of_this_code(result: Result, entry: Entry) -> bool:
    now, then = entry.job.source, result.code
    if now is None or then is None:
        return True
    return all(value in now.same.get(name, ()) for name, value in then.hashes.items())


def digest(path: Path) -> str:
    with open_regular(path, most_bytes=MOST_BYTES, follow_links=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------------- the folder as a whole


def mark(folder: Path, source: Source) -> None:
    """Make a folder this sweep's.

    Raises:
        ConfigError: it is another's.
    """
    if (folder / MARK_NAME).exists():
        known_as = read_mark(folder)
        if known_as["sweep_id"] != source.sweep_id:
            raise ConfigError(
                str(folder),
                f"the folder of sweep {known_as['name']} ({known_as['sweep_id']})",
                f"one of sweep {source.name} ({source.sweep_id}), or a new one",
                "Give another --out",
            )
        return
    write_sheet(folder / MARK_NAME, MARK, {"sweep_id": source.sweep_id, "name": source.name}, [])


def read_mark(folder: Path) -> dict[str, Any]:
    """sweep_id and name.

    Raises:
        ConfigError: it is no folder of a batch.
    """
    head = read_sheet(folder / MARK_NAME, MARK)[0]
    if not all(isinstance(head.get(name), str) for name in ("sweep_id", "name")):
        raise ConfigError(str(folder / MARK_NAME), f"{head!r}"[:200], MARK.what, MARK.remedy)
    return head
