"""Define trackers: places to which a sweep's results are copied from the ledger.

MLflow (`ablate.tracking.sync`) is the tracker that reports read. Further trackers copy one trial
after another. The ledger's table `mlflow_runs` has the checksum of each ended trial that a tracker
has completely; any other trial is written again.
"""

import re
import shlex
import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from filelock import FileLock

from ablate.ledger.ledger import Ledger, is_held
from ablate.ledger.owner import Owner
from ablate.ledger.queries import list_sweep_trials
from ablate.ledger.schema import LedgerError
from ablate.tracking import payload
from trainables.words.errors import ConfigError

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]

OPTION = "--tracker"
TRACKERS = {  # the value of --tracker, up to a colon → class
    "tensorboard": "ablate.tracking.tensorboard_files:TensorBoardTracker",
    "wandb": "ablate.tracking.wandb_runs:WandbTracker",
}
LOCK_SECONDS = 5.0
_CAUSE = re.compile(r"\(Caused by (.*)\)$")  # urllib3's part of MLflow's message


class Tracker(ABC):
    """A place to which one sweep is copied; used by one thread.

    Args:
        title: how messages begin: the name and the place, without a password.
        store: the tracker's name in the ledger.
        remedy: the command that writes later what is missing.

    Attributes:
        name: what messages call it.
        kind: its name in `--tracker` and in the name of its lock file.
        is_required: whether a bug in the tracker ends the command with an error.
        refused: why the store refused trials when they were last written, by trial.
    """

    name: str
    kind: str
    is_required = False

    def __init__(self, title: str, store: str, remedy: str) -> None:
        """Name the tracker; nothing is imported or opened."""
        self.title, self.store, self.remedy = title, store, remedy
        self.refused: dict[str, str] = {}

    def open(self, ledger: Ledger, sweep_id: str) -> None:
        """Read the sweep, and prepare the file lock for processes that write its trials."""
        self.ledger, self.sweep_id, self.sweep = ledger, sweep_id, ledger.get_sweep(sweep_id)
        self.driver = str(Owner.from_this_process())
        name = (
            f"{ledger.path.name}.{self.kind}-{sweep_id}-{zlib.crc32(self.store.encode()):08x}.lock"
        )
        self.lock = FileLock(ledger.path.with_name(name), timeout=LOCK_SECONDS)

    @abstractmethod
    def sync(
        self, trial_ids: Iterable[str] | None = None, *, status: EndStatus | None = None
    ) -> int:
        """Write what the copy lacks of these trials (None: of all); return the number of trials.

        After any failure the same call writes the rest. `status` says how the sweep has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is open, after everything was written."""

    def is_away(self, error: BaseException) -> bool:
        """Return whether an error means that the store, or the ledger's disk, cannot be used now.

        The caller tries again later; any other error is a bug.
        """
        return isinstance(error, OSError | LedgerError | sqlite3.Error)

    def redact(self, text: str) -> str:
        """Return a text without the password of the store."""
        return text


@dataclass(frozen=True)
class TrialRun:
    """What the ledger has of one trial of a sweep: rows, cells, and metrics after its end."""

    sweep: payload.Row
    trial: payload.Row
    cells: list[dict[str, Any]]  # each with study, cell, seed and perhaps fold
    epochs: Sequence[payload.Row]
    final: Sequence[payload.Point]


class TrialTracker(Tracker):
    """A tracker that copies one trial after another.

    Args:
        option: the value of `--tracker` that names the tracker.
        out: the output folder, which has the ledger and gets the tracker's files.
    """

    def __init__(self, option: str, out: Path) -> None:
        command = ["ablate", "ledger", "replay", "--out", str(out), OPTION, option]
        super().__init__(f"{self.name} ({OPTION} {option})", option, f"`{shlex.join(command)}`")
        self.out = out

    @abstractmethod
    def check_usable(self) -> None:
        """Raise ConfigError if the option, a package or the user's set-up has a fault."""

    @abstractmethod
    def write(self, run: TrialRun) -> None:
        """Write what the tracker lacks of a trial, which may be running."""

    def has_run(self, sweep: payload.Row, cells: list[dict[str, Any]]) -> bool:
        """Return whether the tracker still has a written trial, which fills these cells."""
        return True

    def sync(
        self, trial_ids: Iterable[str] | None = None, *, status: EndStatus | None = None
    ) -> int:
        """Write what the copy lacks of these trials; see `Tracker.sync`.

        A trial that cannot be written blocks no other; the first error is raised at the end.
        """
        if trial_ids is None:
            trials = list_sweep_trials(self.ledger, self.sweep_id)
            trial_ids = [trial["trial_id"] for trial in trials]
        ids, errors = list(dict.fromkeys(trial_ids)), []
        for trial_id in ids:
            try:
                with self.lock:
                    self._write_trial(trial_id)
            except Exception as error:
                if not self.is_away(error):
                    raise
                errors.append(error)
        if errors:
            raise errors[0]
        return len(ids)

    def _write_trial(self, trial_id: str) -> None:
        """Write a trial, unless it has ended and nothing of it has changed since it was written."""
        ledger, store, sweep_id = self.ledger, self.store, self.sweep_id
        trial, rows = ledger.get_trial(trial_id), ledger.list_cells(sweep_id, trial_id)
        if trial is None or not rows:  # the trial has not started, or is none of this sweep
            return
        if trial["status"] == "running" and is_held(trial, Owner.parse(self.driver)):
            return  # another driver trains the trial, and writes it
        cells, checksum, final = payload.describe_cells(rows, "study", "cell", "seed"), 0, []
        if trial["status"] in payload.STATUS:
            evaluations = ledger.get_evaluations(trial_id)
            checksum = payload.compute_checksum(trial, evaluations, cells)
            recorded = ledger.get_recorded_times(trial_id)
            final = list(payload.iterate_final_metrics(trial, evaluations, recorded))
        row = ledger.get_mlflow_run(store, sweep_id, trial_id)
        is_new = row is None or row["logged_final"] != checksum
        if checksum == 0 or is_new or not self.has_run(self.sweep, cells):
            epochs = ledger.list_epochs(trial_id)
            self.write(TrialRun(self.sweep, trial, cells, epochs, final))
        if is_new:
            position = {"trial_id": trial_id, "run_id": trial_id, "logged_final": checksum}
            ledger.put_mlflow_run(store, sweep_id, position)


def build_trackers(options: Sequence[str], out: Path) -> list[TrialTracker]:
    """Return the trackers that `--tracker` names, after a check that they can be used.

    Raises:
        ConfigError: there is no such tracker, one is given twice, or one cannot be used.
    """
    trackers: dict[str, TrialTracker] = {}
    for option in options:
        kind = option.partition(":")[0]
        if kind not in TRACKERS:
            raise ConfigError(OPTION, f"there is no {kind!r}", f"Give one of {', '.join(TRACKERS)}")
        if kind in trackers:
            raise ConfigError(OPTION, f"{kind} is given twice", "Keep one of the two")
        trackers[kind] = resolve_name(TRACKERS[kind])(option, out)
        trackers[kind].check_usable()
    return list(trackers.values())


def extract_first_line(error: BaseException) -> str:
    """Return the first line of an error or, of a failed request, its cause; at most 200 letters."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    cause = _CAUSE.search(line)
    return (cause[1] if cause else line)[:200]
