"""`ablate cells`: what a sweep could start now, as a file that any machine can run.

Nothing is claimed: whoever runs the sweep meanwhile trains these trials too, and the first result
stands. Proposals of a search are recorded, as a run does before it hands one out, so that the file
and all later ones are rounds of one search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablate.engine.before import as_it_is
from ablate.engine.check_data import check_classes
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.plan.cell import Cell
from ablate.plan.plan import Plan
from ablate.sweep.jobs.claims import training_job
from ablate.sweep.progression import Progression
from ablate.values.terminal import say
from trainables.errors import ConfigError
from trainables.jobs.batch.cells import Entry, Place, Source, write_cells
from trainables.jobs.request import Job
from trainables.trial import TrialConfig

KEPT = ("versions", "git_commit", "git_dirty")  # of the driver's provenance


@dataclass(frozen=True)
class Written:
    """What is in the file, and what is not.

    trials: in it; none: no file was written. again: of those, the trained ones that lack an
    evaluation. known: trials with nothing left to do. ensembles: folds that are done and lack
    theirs, which is a run's. busy: under way by a driver. later: cells that follow from results.
    blocked: study → why it can go no further.
    """

    trials: int
    again: int
    known: int
    ensembles: int
    busy: int
    later: int
    blocked: dict[str, str]


def leave(plan: Plan, settings: Settings, to: Path) -> Written:
    """Write the trials that can start now.

    Raises:
        ConfigError: a study that no batch can run as a run does, classes that do not suffice,
            records of other code, or a file that cannot be written.
    """
    with as_it_is(settings.ledger) as ledger:
        progression = Progression(plan, settings.facts(ledger), record=False)
        while progression.advance():
            pass
        refuse_unfit(plan, progression)
        if settings.reads_data:
            for text in check_classes(plan, progression, settings.cache):
                say(f"warning: {text}", flush=True)
    with Ledger(settings.ledger) as ledger:
        ledger.release_dead()
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolved_spec(), settings.provenance)
        progression = Progression(plan, settings.facts(ledger), record=True)
        trials: dict[str, list[Cell]] = {}
        while fresh := progression.advance():
            ledger.put_cells(plan.sweep_id, [vars(cell) for cell in fresh])
            for cell in fresh:
                if cell.error is None:  # a fact of its own, which a run records
                    trials.setdefault(cell.trial_id, []).append(cell)
        for line in progression.facts.agree(trials, same_code=settings.same_code):
            say(f"taken as the same code: {line}")
        return _written(plan, settings, progression, trials, to)


def refuse_unfit(plan: Plan, progression: Progression) -> None:
    """A study whose course depends on when trials end is nothing for a file: run to their ends,
    trials that its scheduler would have stopped would be other facts, and give other proposals,
    under the same name."""
    for name in plan.order:
        if progression.studies[name].complete:
            continue
        place = plan.loaded.source.locate(f"studies.{name}")
        remedy = "Run this study with `ablate run --study`, or write cells of others by --study"
        if name in progression.legs:
            halting = progression.legs[name].scheduler.name
            raise ConfigError(
                f"{place}.scheduler",
                f"{halting}, which stops trials while others run",
                "for `ablate cells` studies whose trials run to their ends",
                remedy,
            )
        proposer = progression.proposers.get(name)
        if proposer is not None and isinstance(proposer.study.round, str):
            raise ConfigError(
                f"{place}.round",
                "asynchronous, which proposes whenever a worker is free",
                "for `ablate cells` a number of trials: a round is a file",
                remedy,
            )


def _written(
    plan: Plan,
    settings: Settings,
    progression: Progression,
    trials: dict[str, list[Cell]],
    to: Path,
) -> Written:
    entries: list[Entry] = []
    again = known = ensembles = busy = 0
    for trial_id, cells in trials.items():
        if all(map(progression.settled, cells)):
            known += 1
            continue
        if _held(progression.facts.ledger.trial(trial_id)):
            busy += 1
            continue
        job = training_job(cells, settings.jobs(plan), progression.facts.sources)
        fact = progression.facts[trial_id]
        if fact.status == "done":
            if not fact.lacking(job.evaluate, job.metrics):
                ensembles += 1
                continue
            again += 1  # where its folder is it is only read, elsewhere trained first
        entries.append(_entry(plan, cells, job))
    if entries:
        provenance = {
            name: settings.provenance[name] for name in KEPT if name in settings.provenance
        }
        source = Source(plan.sweep_id, plan.spec.name, plan.spec.checkpoints == "clean", provenance)
        try:
            write_cells(to, source, entries)
        except OSError as error:
            raise ConfigError(
                "--to",
                f"{to}, which cannot be written ({error.strerror or error})",
                "a writable file",
            ) from error
    states = [progression.studies[name] for name in plan.order]
    return Written(
        len(entries),
        again,
        known,
        ensembles,
        busy,
        sum(state.size - len(state.cells) for state in states if not state.blocked),
        {state.name: state.blocked for state in states if state.blocked},
    )


def _held(row: dict[str, Any] | None) -> bool:
    """Whether a driver that lives has the trial."""
    if row is None or row["owner"] is None:
        return False
    return Owner.parse(row["owner"]).alive(row["heartbeat"])


def _entry(plan: Plan, cells: Sequence[Cell], job: Job) -> Entry:
    # Where files lie here is nothing to the machine that runs it, nor for others to read.
    elsewhere = replace(job.runtime, cache_dir=Path("cache"), trial_dir=None, run=None)
    return Entry(
        places=tuple(Place(cell.study, cell.cell, cell.fold) for cell in cells),
        config_hash=cells[0].config_hash,
        fingerprint=plan.fingerprint(TrialConfig.model_validate(cells[0].config)),
        job=replace(job, runtime=elsewhere),
    )
