"""A trial's next job, claimed in the ledger before anyone hears of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ablate.designs.base import ENSEMBLE, SPLITS
from ablate.ledger.claims import Claim
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.sources import Sources
from ablate.plan.cell import Cell
from ablate.schedulers.base import WAIT
from ablate.sweep.jobs.elsewhere import Away, Elsewhere, read_by
from ablate.sweep.jobs.settings import JobSettings
from ablate.sweep.progression import Progression
from trainables.core.trial_folder import trial_folder
from trainables.jobs.request import Fold, Job, Mode


def training_job(cells: Sequence[Cell], settings: JobSettings, sources: Sources | None) -> Job:
    """What trains the trial that these cells share to its end, and reads all that they ask for."""
    return Job(
        trial_id=cells[0].trial_id,
        config=cells[0].config,
        seed=cells[0].seed,
        runtime=settings.runtime(cells[0].trial_id),
        evaluate=_in_order(_asked(cells) - {ENSEMBLE}),  # that is a job of its own, later
        metrics=_metrics(cells),
        source=None if sources is None else sources.of_job(cells[0].config),
    )


def _asked(cells: Sequence[Cell]) -> set[str]:
    return {split for each in cells for split in each.evaluate}


def _in_order(splits: set[str]) -> tuple[str, ...]:
    return tuple(each for each in SPLITS if each in splits)


def _metrics(cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in cells for name in each.metrics))


@dataclass
class Claims:
    """What a trial needs next by the sweep's state, made this driver's.

    retry_failed, force: recorded failures, or all records, do not count the first time that this
    run comes to a trial.
    """

    progression: Progression
    ledger: Ledger
    owner: Owner
    retry_failed: bool = False
    force: bool = False
    _seen: set[str] = field(default_factory=set)
    _elsewhere: Elsewhere = field(default_factory=Elsewhere)

    def take(
        self, cells: Sequence[Cell], settings: JobSettings
    ) -> Job | Away | Literal["busy", "known"] | None:
        """The next job of the trial that these cells share.

        Returns:
            "busy": another driver has it, or it needs a storage that is away. `Away`: one that has
            been so for long. "known": the ledger has its result, or its failure.
            None: it is to wait, for its scheduler or for the folds of its ensemble.
        """
        cell, until = cells[0], self._until(cells)
        if until == WAIT:
            return None
        trial_id, facts = cell.trial_id, self.progression.facts
        job = training_job(cells, settings, facts.sources)
        mode: Mode = "train"
        evaluate = set(job.evaluate)
        members: tuple[Fold, ...] = ()
        if facts[trial_id].status == "done":
            mode = "evaluate"
            evaluate = set(facts[trial_id].lacking(_asked(cells), job.metrics))
            if evaluate == {ENSEMBLE}:
                folds = self.progression.ensembles.members(cells, settings.trials)
                if folds is None:
                    return None  # the end of the last of its folds asks again
                mode, members = "ensemble", folds
        if mode != "ensemble":
            evaluate.discard(ENSEMBLE)
        job = replace(job, evaluate=_in_order(evaluate), mode=mode, until=until, members=members)
        forced = self.force and trial_id not in self._seen
        needed = settings.fetch if mode != "train" else settings.forget if forced else None
        if needed is not None and (late := self._late(job, needed)):
            return late
        claim = self._training(cell, settings) if mode == "train" else self._evaluation(cells)
        self._seen.add(trial_id)
        if claim != "mine":
            return "busy" if claim == "busy" else "known"
        return job

    def _late(self, job: Job, needed: Callable[[str], None]) -> Literal["busy"] | Away | None:
        """Do what a job needs of files elsewhere, as the trial's holder; None: it is done. Before
        its claim: what the ledger has forgotten and a storage has not would be found there as the
        new result."""
        if self._elsewhere.waits:
            return "busy"
        if not self.ledger.hold(job.trial_id, self.owner):
            self._seen.add(job.trial_id)
            return "busy"
        done: bool | Away = False
        try:
            done = self._elsewhere.done(needed, read_by(job) or [job.trial_id])
        except Away as error:
            done = error
        finally:
            if done is not True:
                self.ledger.let_go(job.trial_id, self.owner)
        return done if isinstance(done, Away) else None if done else "busy"

    def _evaluation(self, cells: Sequence[Cell]) -> Claim:
        trial_id = cells[0].trial_id
        claim = self.ledger.claim_evaluation(trial_id, self.owner)
        if claim == "mine":
            self.progression.facts.refresh(trial_id)
            if all(map(self.progression.settled, cells)):  # another driver has just done it
                self.ledger.release(trial_id, "interrupted")
                return "done"
        return claim

    def _training(self, cell: Cell, settings: JobSettings) -> Claim:
        trial_id, sources = cell.trial_id, self.progression.facts.sources
        first = trial_id not in self._seen
        before = None if sources is None else self.ledger.trial(trial_id)
        claim = self.ledger.claim(
            trial_id,
            cell.config_hash,
            cell.seed,
            cell.config,
            self.owner,
            retry_failed=self.retry_failed and first,
            force=self.force and first,
            source=None if sources is None else sources.key(cell.config),
        )
        if claim != "mine":
            return claim
        if self.force and first:
            shutil.rmtree(trial_folder(settings.trials, trial_id), ignore_errors=True)
        if sources is not None and before is not None and sources.differing(before["source"], ()):
            # A driver with other code was at it and is gone: the worker begins anew as well.
            self.ledger.drop_epochs(trial_id)
        return claim

    def _until(self, cells: Sequence[Cell]) -> int | Literal["wait"] | None:
        """How far the cells of a trial want it to train now; None: to its end."""
        wanted = [self.progression.until(c) for c in cells if not self.progression.settled(c)]
        if None in wanted:
            return None
        epochs = [epoch for epoch in wanted if isinstance(epoch, int)]
        return max(epochs) if epochs else WAIT
