"""Publish a driver's status in its output folder, and receive requests to stop there.

    OUT/drivers/<sweep>-<driver>.json    status: sweep, studies, slots, running trials
    OUT/drivers/<sweep>-<driver>.stop    created by a process that asks the driver to stop

With files, any shell or machine that sees the folder can read the status and ask for a stop; a
signal would need the same host and user. The files are not needed to continue, because results are
in the ledger. The next driver deletes the file of a driver that was killed.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Annotated, Self

from pydantic import BaseModel, Field, PlainSerializer, PlainValidator

from ablate.ledger.ledger import STALE_SECONDS, Owner
from trainables.words.errors import ConfigError
from trainables.words.files import read_regular
from trainables.words.texts import expand_user_path

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FOLDER = "drivers"
POLL_SECONDS = 0.5
MOST_BYTES = 2**24  # of a driver's file, which has a few for each running trial
log = logging.getLogger("ablate.engine")


@dataclass
class StudyRow:
    """Progress of a study, in cells × seeds.

    Attributes:
        eta: remaining seconds; None if unknown.
        best: best value of the first objective.
    """

    study: str
    size: int
    known: int
    done: int = 0
    running: int = 0
    failed: int = 0
    best: float | None = None
    eta: float | None = None
    note: str = ""


def format_duration(seconds: float | None) -> str:
    """Format seconds as `7 s`, `4 min 05 s` or `1 h 02 min`; None as `?`."""
    if seconds is None:
        return "?"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds_left:02d} s" if minutes else f"{seconds_left} s"


def format_study_row(row: StudyRow) -> str:
    best = "-" if row.best is None else f"{row.best:.4f}"
    text = f"{row.study}: {row.done}/{row.size} done, {row.running} running, {row.failed} failed"
    note = f" ({row.note})" if row.note else ""
    return f"{text}, best {best}, left {format_duration(row.eta)}{note}"


def resolve_output_folder(path: str | Path) -> Path:
    """Expand the path of `--out`; raise ConfigError if it is a file or cannot be accessed."""
    folder = expand_user_path(path, "--out")
    try:
        if not folder.exists() or folder.is_dir():
            return folder
        fault = "it is not a folder"
    except OSError as error:
        fault = str(error.strerror)
    raise ConfigError(
        "--out", f"{str(folder)[:200]} cannot be used ({fault})", "Use another folder"
    )


class Node(BaseModel, strict=True):
    """One machine of a driver, and the trials that run on it."""

    name: str
    slots: int
    trials: list[str]


class DriverStatus(BaseModel, strict=True):
    """The status that a driver wrote.

    Attributes:
        path: its file.
        began, at: when the run began and when the status was written, in seconds since 1970.
        slots: how many trials run at once; None before Ray has started.
        trials: ids of the running trials.
        stopping: whether the driver was asked to stop.
    """

    path: Path = Field(default=Path(), exclude=True)
    owner: Annotated[Owner, PlainValidator(Owner.parse), PlainSerializer(str)]
    sweep_id: str
    name: str
    began: float
    at: float = 0.0
    slots: int | None = None
    trials: list[str] = []
    studies: list[StudyRow] = []
    stopping: bool = False
    nodes: list[Node] = []

    @property
    def alive(self) -> bool:
        return self.owner.is_alive(self.at, STALE_SECONDS)

    def ask_to_stop(self) -> None:
        """Ask the driver to stop by creating the `.stop` file that it looks for."""
        with contextlib.suppress(FileExistsError):  # a stop was requested before
            self.path.with_suffix(".stop").touch(exist_ok=False)


def list_drivers(out: Path) -> list[DriverStatus]:
    """Read all drivers' status files in the folder `out`, also of dead drivers; latest first."""
    statuses = []
    for path in (out / FOLDER).glob("*.json"):
        try:
            text = read_regular(path, most_bytes=MOST_BYTES, follow_links=False)
            driver = DriverStatus.model_validate_json(text)
        except (OSError, ValueError) as error:  # its driver has just ended or has another version
            log.info("The driver's file %s is ignored: %r", path, error)
            continue
        driver.path = path
        statuses.append(driver)
    return sorted(statuses, key=lambda driver: -driver.began)


class DriverStatusFile:
    """Keep this driver's status file up to date inside the `with` block.

    Args:
        title: the sweep's name.
        stop: called once, in a thread, when a stop is requested.
    """

    def __init__(
        self, out: Path, owner: Owner, sweep_id: str, title: str, stop: Callable[[], None]
    ) -> None:
        """Prepare the first status of sweep `title`, and a thread that calls `stop` on request."""
        name = f"{sweep_id}-{sha256(str(owner).encode()).hexdigest()[:12]}"
        self.path = out / FOLDER / f"{name}.json"
        self.stop = stop
        self._is_stopping, self._ended = False, threading.Event()  # stop requested; block ended
        self._thread = threading.Thread(
            target=self._watch_stop_requests, name="driver status", daemon=True
        )
        self._status = DriverStatus.model_construct(
            owner=owner, sweep_id=sweep_id, name=title, began=time.time()
        )

    def __enter__(self) -> Self:
        """Delete files of drivers that were killed, and start the thread that writes the status."""
        for driver in list_drivers(self.path.parent.parent):
            if not driver.alive:
                _remove_files(driver.path)
        self._write_status()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        _remove_files(self.path)

    def publish(
        self,
        rows: Iterable[StudyRow],
        trials: Iterable[str],
        slots: int | None,
        nodes: Iterable[Node] = (),
    ) -> None:
        """Set the status that a thread writes to the file: studies, running trials, machines."""
        changes = {"studies": [*rows], "trials": [*trials], "slots": slots, "nodes": [*nodes]}
        self._status = self._status.model_copy(update=changes)

    def _watch_stop_requests(self) -> None:
        """Write the status regularly, and call `self.stop` once when the `.stop` file appears."""
        while not self._ended.wait(POLL_SECONDS):
            # unlike Path.exists, os.path.exists raises nothing if the folder cannot be read
            is_requested = os.path.exists(self.path.with_suffix(".stop"))  # noqa: PTH110
            if is_requested and not self._is_stopping:
                self._is_stopping = True
                self.stop()
            self._write_status()

    def _write_status(self) -> None:
        """Replace the status file in one step, by a rename; log a failure and go on."""
        changes = {"at": time.time(), "stopping": self._is_stopping}
        text = self._status.model_copy(update=changes).model_dump_json()
        draft = self.path.with_suffix(".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:  # the run does not need this file
            log.info("The status of this run cannot be written to %s: %s", self.path, error)


def _remove_files(path: Path) -> None:
    """Delete the files of a driver that has ended; ignore a failure."""
    for suffix in (".json", ".tmp", ".stop"):
        with contextlib.suppress(OSError):
            path.with_suffix(suffix).unlink(missing_ok=True)


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` at the first Ctrl-C, SIGTERM or SIGHUP, and abort at the second one.

    A closed terminal sends SIGHUP twice, from the kernel and from the shell, so a second SIGHUP
    does not abort. Output to a closed terminal is discarded. If SIGHUP is ignored already, as under
    `nohup`, it stays ignored.

    Yields:
        A list to which the number of the first signal is added.
    """
    signals: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # those of stdout and stderr

    def discard_output_to_closed_terminal() -> None:
        """Send stdout and stderr to /dev/null if they were terminals and are none any more."""
        for stream in terminals:
            if not os.isatty(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)

    def handle_signal(number: int, _: FrameType | None) -> None:
        """Call `stop` at the first signal; abort at a second one other than SIGHUP."""
        if number == signal.SIGHUP:
            discard_output_to_closed_terminal()
        if not signals:
            signals.append(number)
            stop()
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python lets only the main thread handle signals
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    if handlers[signal.SIGHUP] == signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    for number in handlers:
        signal.signal(number, handle_signal)
    try:
        yield signals
    finally:
        discard_output_to_closed_terminal()  # again: SIGHUP may precede the closing
        for number, handler in handlers.items():
            signal.signal(number, handler)
