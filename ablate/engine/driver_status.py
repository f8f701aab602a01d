"""What a driver tells of itself in its output folder, and the request to stop it finds there.

    OUT/drivers/<sweep>-<driver>.json    who drives which sweep, its studies, its slots, by now
    OUT/drivers/<sweep>-<driver>.stop    made by whoever wants it to stop

Files, because any shell or machine that sees the folder can then ask and be told, whatever the
driver is at; a signal would need the same host and the same user. They hold nothing that is needed
to go on: that is in the ledger. A driver that was killed leaves its file, which the next one
removes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from ablate.ledger.owner import HEARTBEAT_SECONDS, STALE_SECONDS, Owner
from trainables.errors import ConfigError
from trainables.machine.files import read_regular
from trainables.machine.texts import expand_user_path

OPTION, FOLDER = "--out", "drivers"
POLL_SECONDS = 0.5
MOST_BYTES = 2**24  # of a driver's file, which has a few for each trial at work
log = logging.getLogger("ablate.engine")


# Of a line that is printed: no control characters, and finite times that can be shown.
Name = Annotated[str, Field(pattern=r"^\P{Cc}*$", max_length=4096)]
Seconds = Annotated[float, Field(ge=0, le=253_402_300_799, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**12)]


@dataclass(frozen=True)
class StudyRow:
    """Counts are of cells × seeds. eta: seconds, None if unknown. best: of the first objective."""

    study: Name
    size: Count
    known: Count
    done: Count
    running: Count
    failed: Count
    best: float | None
    eta: Seconds | None
    note: Name

    @property
    def is_finished(self) -> bool:
        return self.done + self.failed >= self.size


def format_duration(seconds: float | None) -> str:
    """Return `1:02:03`, `4:05`, or `?`."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_driver(row: StudyRow) -> str:
    best = "-" if row.best is None else f"{row.best:.4f}"
    text = f"{row.study}: {row.done}/{row.size} done, {row.running} running, {row.failed} failed"
    note = f" ({row.note})" if row.note else ""
    return f"{text}, best {best}, left {format_duration(row.eta)}{note}"


def resolve_output_folder(given: str | Path) -> Path:
    """Return the folder, which need not be there yet.

    Raises:
        ConfigError: a path that none can have, a file, or a place that cannot be looked at.
    """
    folder = expand_user_path(given, OPTION)
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        return folder
    except OSError as error:
        fault = f"{str(folder)[:200]}: {error.strerror}; name another folder"
        raise ConfigError(OPTION, fault) from None
    if not is_folder:
        raise ConfigError(OPTION, f"{folder} is no folder; name another one")
    return folder


class Node(BaseModel):
    """A machine of a driver, and the trials that run there."""

    model_config = ConfigDict(strict=True)

    name: Name
    slots: Annotated[int, Field(ge=0, le=10**9)]
    trials: list[Name]


class DriverStatus(BaseModel):
    """A driver as it last said of itself, in a file that anybody who may write the folder can make.

    path: its file. began, at: of the run, and of this word; seconds since 1970. slots: trials at
    once; None: Ray has not started. trials: the ids of those at work. studies: as the board has
    them. stopping: it was asked to.
    """

    model_config = ConfigDict(strict=True)

    path: Path = Field(default=Path(), exclude=True)
    owner: Annotated[Owner, PlainValidator(Owner.parse), PlainSerializer(str)]
    sweep_id: Name
    name: Name
    began: Seconds
    at: Seconds = 0.0
    slots: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    trials: list[Name] = []
    studies: list[StudyRow] = []
    stopping: bool = False
    nodes: list[Node] = []

    @property
    def alive(self) -> bool:
        return self.owner.is_alive(self.at, STALE_SECONDS)

    def ask_to_stop(self) -> None:
        """Raises OSError: the folder cannot be written."""
        with contextlib.suppress(FileExistsError):  # somebody has asked already
            self.path.with_suffix(".stop").touch(exist_ok=False)


def list_drivers(out: Path) -> list[DriverStatus]:
    """Return those that have left a file, alive or not, the latest first."""
    known = []
    for path in (out / FOLDER).glob("*.json"):
        try:
            text = read_regular(path, most_bytes=MOST_BYTES, follow_links=False)
            driver = DriverStatus.model_validate_json(text)
        except (OSError, ValueError) as error:  # it has ended just now, or is of another version
            log.info("%s tells of no driver: %r", path, error)
            continue
        driver.path = path
        known.append(driver)
    return sorted(known, key=lambda driver: -driver.began)


class DriverStatusFile:
    """Keep this driver's file for as long as the block lasts.

    Args:
        title: the sweep's name.
        stop: called once, in a thread, when somebody has asked the driver to stop.
    """

    def __init__(
        self, out: Path, owner: Owner, sweep_id: str, title: str, stop: Callable[[], None]
    ) -> None:
        name = f"{sweep_id}-{sha256(str(owner).encode()).hexdigest()[:12]}"
        self.path = out / FOLDER / f"{name}.json"
        self.stop = stop
        self._lock, self._news = threading.Lock(), False
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._watch_stop_requests, name="presence", daemon=True
        )
        self._state = DriverStatus.model_construct(
            owner=owner, sweep_id=sweep_id, name=title, began=time.time()
        )

    def __enter__(self) -> Self:
        for driver in list_drivers(self.path.parent.parent):
            if not driver.alive:
                _remove_file(driver.path)
        for request in self.path.parent.glob("*.stop"):  # of one that ended before it looked
            if not request.with_suffix(".json").exists():
                _remove_file(request)
        self._write_atomically()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        _remove_file(self.path)

    def publish(
        self,
        rows: Iterable[StudyRow],
        trials: Iterable[str],
        slots: float | None,
        nodes: Iterable[Node] = (),
    ) -> None:
        """Take note of what is going on now."""
        state = {"studies": [*rows], "trials": [*trials], "slots": slots, "nodes": [*nodes]}
        with self._lock:
            self._state, self._news = self._state.model_copy(update=state), True

    def _watch_stop_requests(self) -> None:
        written = time.monotonic()
        while not self._ended.wait(POLL_SECONDS):
            # Unlike a Path's own, this raises nothing where the folder cannot be read now.
            is_asked = os.path.exists(self.path.with_suffix(".stop"))  # noqa: PTH110
            if is_asked and not self._state.stopping:
                with self._lock:
                    self._state.stopping = self._news = True
                self.stop()
            if self._news or time.monotonic() - written >= HEARTBEAT_SECONDS:
                written = time.monotonic()
                self._write_atomically()

    def _write_atomically(self) -> None:
        """Whole or not at all; whether it survives the machine does not matter."""
        with self._lock:
            text = self._state.model_copy(update={"at": time.time()}).model_dump_json()
            self._news = False
        draft = self.path.with_suffix(".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            # A full disk is told by what must be written; this is for whoever looks on.
            log.info("no word of this run in %s: %s", self.path, error)


def _remove_file(path: Path) -> None:
    """What cannot be removed stays: it is of a driver that is gone."""
    for suffix in (".json", ".tmp", ".stop"):
        try:
            path.with_suffix(suffix).unlink(missing_ok=True)
        except OSError as error:
            log.info("%s stays: %s", path, error)
