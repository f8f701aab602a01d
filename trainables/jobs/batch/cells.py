"""The file of trials that leaves the driver: `ablate cells` writes it, a batch runs it.

Its head says of which sweep they are, each line is a trial: the job as any worker takes it, and
by what it is known again. Where a job lies and on which device is for the machine to say that
runs it (`trainables/jobs/batch/worker.py`); in the file these are placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.errors import ConfigError
from trainables.jobs.batch.sheet import Kind, read_sheet, write_sheet
from trainables.jobs.crossing import Crosses
from trainables.jobs.request import Job

CELLS = Kind(
    "cells",
    1,
    "a file that `ablate cells SPEC --to FILE` has written",
    "Copy it again, or write it anew with `ablate cells`; to run a part of it give --shard",
)


@dataclass(frozen=True, slots=True)
class Source(Crosses):
    """Of which sweep the trials are, and what wrote the file.

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
    """One trial. config_hash, fingerprint: its identity, and the data's, by which it is checked
    wherever it comes."""

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
    """Whole or not at all."""
    write_sheet(path, CELLS, source.to_dict(), (entry.to_dict() for entry in entries))


def read_cells(path: Path) -> tuple[Source, list[Entry]]:
    """Raises:
    ConfigError: it is not as it was written, or was by other code.
    """
    head, lines = read_sheet(path, CELLS)
    try:
        return Source.from_dict(head), [Entry.from_dict(line) for line in lines]
    except ConfigError as error:
        raise ConfigError(
            f"{path}, {error.path}", error.found, error.expected, error.remedy
        ) from None
