"""`ablate ledger import`: what a batch has finished becomes facts, as if a run had trained it.

All of it is checked first; then come the files, and at last one transaction of the ledger: broken
off anywhere, the same command goes on. What the ledger has already stays as it is. MLflow hears of
it by the next run or `ablate ledger replay`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from ablate.batch.check import LOG, Brought, Trial, look_at, refusal, trained_with
from ablate.ledger.full_disk import is_full, room
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.sources import Sources, summary
from trainables.core.components import EVALUATOR
from trainables.core.trial_folder import TRIALS, trial_folder
from trainables.errors import ConfigError
from trainables.jobs.batch.result import MOST_BYTES, Event, Result
from trainables.machine.files import open_regular

LOCK_SECONDS = 5.0
PIECE = 2**20  # bytes read at once


@dataclass
class Imported:
    """What came of a batch's trials.

    done, failed: new facts. further: facts before that lacked an evaluation. known: facts before
    that lack nothing. otherwise: those that lack something and whose numbers are others. busy:
    trials that a driver is training now. unfinished: of the batch. same: what was taken as the same
    code. torch: version → trials.
    """

    sweep_id: str
    name: str
    done: int = 0
    failed: int = 0
    further: int = 0
    known: int = 0
    otherwise: int = 0
    busy: int = 0
    unfinished: int = 0
    same: tuple[str, ...] = ()
    torch: dict[str, int] = field(default_factory=dict)


def take(folder: Path, out: Path, *, same_code: bool = False) -> Imported:
    """Import a batch's folder into the ledger of an output folder.

    same_code: results of other code at the same REVISION are taken as made by this, from now on.

    Raises:
        ConfigError: anything in it is not what it should be; nothing was written then.
        LedgerError: the ledger cannot be written, or the disk is full.
    """
    with Ledger(out / "ledger.sqlite") as ledger:
        sources = Sources(ledger)
        brought = look_at(folder, ledger, sources)
        fault = refusal(brought)
        if fault is not None and not same_code:
            raise fault
        same = tuple(summary(brought.differing))
        ledger.release_dead()
        done = Imported(
            brought.sweep_id,
            brought.name,
            unfinished=brought.unfinished,
            same=same,
            torch=dict(brought.torch),
        )
        with room(out):
            chosen = [trial for trial in brought.trials if _is_wanted(ledger, trial)]
            for trial in chosen:
                trial_folder(out / TRIALS, trial.result.trial_id)  # or it refuses, before any copy
            for trial in chosen:
                to = trial_folder(out / TRIALS, trial.result.trial_id)
                try:
                    _copy(trial.folder, to, trial.result)
                except OSError as error:
                    if is_full(error):
                        raise
                    raise ConfigError(
                        str(error.filename or to),
                        f"{error.strerror or error}",
                        "a place where the trial's files can be written",
                        "Move away what lies there, and import again",
                    ) from error
            with ledger.write():  # all of it, or nothing
                if brought.differing:
                    sources.accept(brought.differing, brought.hashes)
                _record_all(brought, {each.folder for each in chosen}, ledger, sources, done)
    return done


def _is_wanted(ledger: Ledger, trial: Trial) -> bool:
    """Return whether the files of a trial are to come, as a claim of it would say "mine"."""
    row = ledger.trial(trial.result.trial_id)
    if row is None:
        return True
    if row["status"] == "running" and row["owner"] is not None:
        return False  # owners that are gone have been released
    return row["status"] != "done" and (row["status"] != "failed" or is_final(trial))


def is_final(trial: Trial) -> bool:
    return bool(trial.last["event"] == "final")


def _record_all(
    brought: Brought, copied: set[Path], ledger: Ledger, sources: Sources, done: Imported
) -> None:
    owner = Owner.me()
    for trial in brought.trials:
        result, last = trial.result, trial.last
        if trial.folder not in copied and _is_wanted(ledger, trial):
            done.busy += 1  # a driver that had it when the files were copied has just left it
            continue
        before = ledger.trial(result.trial_id)
        claim = ledger.claim(
            result.trial_id,
            result.config_hash,
            result.seed,
            result.config,
            owner,
            retry_failed=is_final(trial),  # a result is more than a failure
            source=None if result.code is None else sources.record(trained_with(result.code)),
        )
        if claim == "busy":
            done.busy += 1
        elif claim == "done" and is_final(trial):
            _evaluate(ledger, owner, result, last, done)
        elif claim != "mine":
            done.known += 1
        else:
            if before is not None:  # the beginning of another course of the same trial
                ledger.drop_epochs(result.trial_id)
            _record(ledger, result, trial.epochs, last)
            done.done += is_final(trial)
            done.failed += not is_final(trial)


def _evaluate(ledger: Ledger, owner: Owner, result: Result, last: Event, done: Imported) -> None:
    """What a result says of a trial that is a fact: splits and metrics that it lacks.

    Only by the same weights: trained on another processor they may be others, and one trial's
    validation would stand beside another's test.
    """
    trial_id, found = result.trial_id, last["evaluations"]
    known = ledger.evaluations(trial_id, last["evaluator"])
    row = ledger.trial(trial_id) or {}
    if all(metrics.keys() <= known.get(split, {}).keys() for split, metrics in found.items()):
        done.known += 1
        return
    common = [
        (known[s][m], found[s][m]) for s in found if s in known for m in found[s] if m in known[s]
    ]
    if row["best_epoch"] != last["best_epoch"] or any(mine != theirs for mine, theirs in common):
        done.otherwise += 1
        return
    if ledger.claim_evaluation(trial_id, owner) != "mine":
        done.busy += 1
        return
    ledger.record_final(trial_id, last, trained=False, evaluator=_evaluator(result))
    done.further += 1


def _evaluator(result: Result) -> str | None:
    return None if result.code is None else result.code.hashes.get(EVALUATOR)


def _record(ledger: Ledger, result: Result, epochs: list[Event], last: Event) -> None:
    trial_id = result.trial_id
    if last["event"] == "failed":
        ledger.record_epochs(trial_id, epochs)
        ledger.release(trial_id, "failed", last["reason"])
        return
    ledger.record_final(trial_id, last, epochs, evaluator=_evaluator(result))


def _copy(trial: Path, to: Path, result: Result) -> None:
    """The files of a trial to where a run would have left them; its result's last, without which
    the folder is none of a finished trial."""
    to.mkdir(parents=True, exist_ok=True)
    lock = FileLock(to / ".lock")
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise ConfigError(
            str(to),
            "the trial's folder locked by another process",
            "it free",
            "End that process, and import again",
        ) from None
    try:
        names = sorted(result.files, key=lambda name: name == "final.json")
        for name in [LOG, *names]:
            if os.path.lexists(trial / name):
                _copy_file(trial / name, to / name, result.files.get(name))
        shutil.rmtree(to / "checkpoints", ignore_errors=True)
        handle = os.open(to, os.O_RDONLY)
        try:
            os.fsync(handle)  # before the ledger says that they are there
        finally:
            os.close(handle)
    finally:
        lock.release()


def _copy_file(source: Path, target: Path, wanted: str | None) -> None:
    """Copy a regular file, whole or not at all, and only if its bytes are those that were checked.

    Args:
        wanted: their SHA-256; None: of a log, which has none.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    digest, size = hashlib.sha256(), 0
    try:
        with (
            open_regular(source, most_bytes=MOST_BYTES, follow_links=False) as file,
            temporary.open("wb") as copy,
        ):
            while (piece := file.read(PIECE)) and (size := size + len(piece)) <= MOST_BYTES:
                digest.update(piece)
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        if wanted is not None and digest.hexdigest() != wanted:
            raise ConfigError(
                str(source),
                "a file that changed while it was imported",
                "one that stays as it was written",
                "Import again when nothing writes to the batch's folder",
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
