"""Run one cell in this process without Ray: `--cell STUDY/CELL[@seed[.fold]]`."""

from __future__ import annotations

import re
from dataclasses import replace

from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger, send_heartbeats
from ablate.ledger.owner import Owner
from ablate.plan.plan import Cell, Plan
from ablate.sweep.dispatch import JobScheduler
from ablate.sweep.progression import Progression
from ablate.values.errors import format_value, join_words, suggest_nearest
from ablate.values.terminal import print_text
from trainables.errors import ConfigError
from trainables.jobs.attempt import Attempt, limit_threads
from trainables.jobs.request import Job

OPTION = "--cell"


def find_cell(progression: Progression, wanted: str) -> Cell:
    """Find the cell that `STUDY/CELL[@seed[.fold]]` names; the default fold is the first one.

    CELL is a cell's name, the number of a search's proposal, or some of its coordinates
    (`agnostic=off`); components that are not named are on.

    Raises:
        ConfigError: no cell or several cells match, or the cells are not known yet.
    """
    plan = progression.plan
    study, _, cell_text = wanted.partition("/")
    check_study(plan, study)
    match = re.fullmatch(r"(.*?)(?:@(\d+)(?:\.(\d+))?)?", cell_text)
    assert match is not None
    name, seed = match[1], int(match[2] or plan.list_seeds(study)[0])
    fold = plan.list_folds(study)[0] if match[3] is None else int(match[3])
    study_cells = progression.studies[study].cells
    matches = [cell for cell in study_cells if cell.cell == name]
    coords = dict(part.partition("=")[::2] for part in name.split(",") if "=" in part)
    if not matches and coords:
        coords = {**plan.spec.studies[study].find_optional_coordinates(), **coords}
        matches = [
            cell
            for cell in study_cells
            if all(
                key in cell.coords and value in (cell.coords[key], format_value(cell.coords[key]))
                for key, value in coords.items()
            )
        ]
    cells = [cell for cell in matches if (cell.seed, cell.fold) == (seed, fold)]
    if len(cells) != 1:
        places = [
            f"{cell.cell}@{cell.seed}" + ("" if cell.fold is None else f".{cell.fold}")
            for cell in cells or matches or study_cells
        ]
        there = f"name one of {join_words(places[:16])}, in quotes if need be"
        if not study_cells:
            there = "its cells are not known yet: run the sweep first"
        count = f"{len(cells)} cells" if cells else "no cell"
        raise ConfigError(OPTION, f"{study} has {count} {cell_text!r}; {there}")
    return cells[0]


def check_study(plan: Plan, study: str) -> None:
    """Check that the spec has the study, without opening files.

    Raises:
        ConfigError: it has no such study.
    """
    names = list(plan.spec.studies)
    if study not in names:
        fault = (
            f"{study!r} is none of the studies {join_words(names)}. {suggest_nearest(study, names)}"
        )
        raise ConfigError(OPTION, fault)
    if study not in plan.order:
        raise ConfigError(OPTION, f"--study leaves {study} out. Give --cell without --study.")


def run_cell(plan: Plan, settings: Settings, wanted: str) -> int:
    """Run one cell and record its result; return the exit code, 1 if the trial failed."""
    check_study(plan, wanted.partition("/")[0])
    owner = Owner.from_this_process()
    with Ledger(settings.ledger) as ledger, send_heartbeats(settings.ledger, owner):
        ledger.release_dead()
        # A failure is looked at again: this is what the option is for.
        facts = replace(settings, retry_failed=True, force=False).open_facts(ledger)
        progression, jobs = Progression(plan, facts, record=True), settings.build_job_settings(plan)
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolve_spec(), settings.provenance)
        dispatch = JobScheduler(progression, ledger, owner, plan.sweep_id, jobs, retry_failed=True)
        cell = find_cell(progression, wanted)
        for line in dispatch.reconcile_code_versions(same_code=settings.same_code):
            print_text(f"taken as the same code: {line}")
        if cell.error is not None:
            print_text(cell.error)
            return 1
        job = dispatch.claim_job_of(cell.trial_id)
        if job is None:
            state = ledger.get_trial(cell.trial_id) or {}
            print_text(f"{cell.trial_id} is {state.get('status')} already; nothing to do")
            return 0
        print_text(f"{wanted} is trial {cell.trial_id}, folder {jobs.trials}")
        try:
            # Who asks for one cell wants its result, whatever its scheduler says.
            return _run_job(dispatch, replace(job, until=None), settings)
        finally:
            dispatch.interrupt_all("stopped in the foreground")


def _run_job(dispatch: JobScheduler, job: Job, settings: Settings) -> int:
    """Run a job, and print and record its events."""
    limit_threads(settings.request.threads)
    attempt = Attempt(job, settings.runner, clean=dispatch.settings.clean)
    try:
        while True:
            events = attempt.receive_events(0.0)
            dispatch.record_events(job.trial_id, events)
            for event in events:
                if event["event"] == "epoch":
                    metrics = ", ".join(f"{k} {v:.4g}" for k, v in event["metrics"].items())
                    print_text(f"epoch {event['epoch']} ({event['seconds']:.2f} s): {metrics}")
            last = events[-1]
            if last["event"] == "failed":
                print_text(last["traceback"], end="")
                return 1
            if last["event"] == "final":
                for split, metrics in last["evaluations"].items():
                    print_text(f"{split}: {', '.join(f'{k} {v:.4f}' for k, v in metrics.items())}")
                return 0
    finally:
        attempt.close()
