"""`ablate ledger import`: what a batch has finished becomes facts, as if a run had trained it.

Files first, then the ledger, trial by trial: broken off anywhere, the same command goes on. What
the ledger has already stays as it is. MLflow hears of it by the next run or `ablate ledger replay`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from ablate.batch.check import Brought, look_at, refusal, trained_with
from ablate.ledger.full_disk import room
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.sources import Sources, summary
from trainables.core.source.components import EVALUATOR
from trainables.errors import ConfigError
from trainables.jobs.batch.result import Event, Result, read_result
from trainables.machine.files import write_atomically

LOCK_SECONDS = 5.0
LOG = "trial.log"


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
        if brought.differing:
            sources.accept(brought.differing)
        ledger.release_dead()
        done = Imported(
            brought.sweep_id,
            brought.name,
            unfinished=brought.unfinished,
            same=same,
            torch=dict(brought.torch),
        )
        with room(out):
            _record_all(brought, out, ledger, sources, done)
    return done


def _record_all(
    brought: Brought, out: Path, ledger: Ledger, sources: Sources, done: Imported
) -> None:
    owner = Owner.me()
    for trial in brought.trials:
        result, epochs, last = read_result(trial)
        before = ledger.trial(result.trial_id)
        claim = ledger.claim(
            result.trial_id,
            result.config_hash,
            result.seed,
            result.config,
            owner,
            retry_failed=last["event"] == "final",  # a result is more than a failure
            source=None if result.code is None else sources.record(trained_with(result.code)),
        )
        if claim == "busy":
            done.busy += 1
        elif claim == "done" and last["event"] == "final":
            _evaluate(ledger, owner, result, last, done)
        elif claim != "mine":
            done.known += 1
        else:
            try:
                _copy(trial, out / "trials" / result.trial_id, result)
                if before is not None:  # the beginning of another course of the same trial
                    ledger.drop_epochs(result.trial_id)
                _record(ledger, result, epochs, last)
            except BaseException:
                ledger.release(result.trial_id, "interrupted", "its import was broken off")
                raise
            done.done += last["event"] == "final"
            done.failed += last["event"] == "failed"


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
            if (trial / name).exists():
                write_atomically(to / name, (trial / name).read_bytes())
        shutil.rmtree(to / "checkpoints", ignore_errors=True)
    finally:
        lock.release()
