"""Trials that run without a driver: `ablate cells` exports their jobs, `ablate ledger import` takes
what came of them.

An export claims nothing: whoever runs the sweep meanwhile trains these trials too, and the first
result stands. Proposals of a search are recorded before they leave, as a run does, so that all
files are rounds of one search. An import checks everything that it finds, copies the files aside,
and moves and records all trials in one transaction: broken off anywhere, the same command goes on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from ablate.engine.preflight import check_classes, open_ledger_or_empty
from ablate.engine.settings import Settings
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.schema import convert_disk_full, is_full
from ablate.ledger.sources import (
    Differing,
    Sources,
    build_refusal,
    compute_source_key,
    summarize_differences,
)
from ablate.plan.plan import Cell, Plan
from ablate.sweep.progression import Progression
from ablate.sweep.queue import build_training_job
from ablate.values.terminal import print_text
from trainables.core.components import EVALUATOR
from trainables.core.trial_folder import CHECKPOINTS, LOCK, LOG, RESULT, TRIALS, locate_trial_folder
from trainables.errors import ConfigError
from trainables.jobs.batch.files import (
    MOST_BYTES,
    RESULT_NAME,
    Entry,
    Final,
    Result,
    Source,
    digest,
    read_result,
    write_cells,
)
from trainables.jobs.request import Job
from trainables.machine.files import open_regular
from trainables.trial import TrialConfig

LOCK_SECONDS = 5.0  # that another process may hold a trial's folder


def export_cells(plan: Plan, settings: Settings, to: Path) -> Counter[str]:
    """Write the trials that can start now to a file; none: no file is written.

    Returns:
        How many trials are in it ("trials"), how many of those are trained and lack an evaluation
        ("again"), and how many are not: "known", "busy", "later", "ensembles".

    Raises:
        ConfigError: a study that no batch can run as a run does, classes that do not suffice,
            records of other code, or a file that cannot be written.
    """
    _check_studies(plan, settings)
    counts, entries = Counter[str](), list[Entry]()
    with Ledger(settings.ledger) as ledger:
        ledger.release_dead()
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolve_spec(), settings.provenance)
        progression = Progression(plan, settings.open_facts(ledger), record=True)
        trials: dict[str, list[Cell]] = {}
        while fresh := progression.list_new_cells():
            ledger.put_cells(plan.sweep_id, [vars(cell) for cell in fresh])
            # An error is a fact of its own, which a run records.
            for cell in filter(lambda cell: cell.error is None, fresh):
                trials.setdefault(cell.trial_id, []).append(cell)
        for line in progression.facts.reconcile_code_versions(trials, same_code=settings.same_code):
            print_text(f"taken as the same code: {line}")
        states = [progression.studies[name] for name in plan.order]
        counts["later"] = sum(s.size - len(s.cells) for s in states if not s.blocked)
        for state in filter(lambda state: state.blocked, states):
            print_text(f"{state.name}: blocked: {state.blocked}")
        for trial_id, cells in trials.items():
            row, fact = ledger.get_trial(trial_id), progression.facts[trial_id]
            job = build_training_job(
                cells, settings.build_job_settings(plan), progression.facts.sources
            )
            if all(map(progression.is_settled, cells)):
                counts["known"] += 1
            elif row and row["owner"] and Owner.parse(row["owner"]).is_alive(row["heartbeat"]):
                counts["busy"] += 1
            elif fact.status == "done" and not fact.find_missing_evaluations(
                job.evaluate, job.metrics
            ):
                counts["ensembles"] += 1
            else:  # one that is done is only read where its folder is, elsewhere trained first
                counts["again"] += fact.status == "done"
                entries.append(_build_entry(plan, cells, job))
    counts["trials"] = len(entries)
    if entries:
        source = Source(plan.sweep_id, plan.spec.name, plan.spec.checkpoints == "clean")
        try:
            write_cells(to, source, entries)
        except OSError as error:
            raise ConfigError(
                "--to", f"{to} cannot be written ({error.strerror or error}): name another file"
            ) from error
    return counts


def _build_entry(plan: Plan, cells: Sequence[Cell], job: Job) -> Entry:
    # Where files lie here is nothing to the machine that runs it, nor for others to read.
    runtime = replace(job.runtime, cache_dir=Path("cache"), trial_dir=None, run=None)
    names = [cell.cell if cell.fold is None else f"{cell.cell}.{cell.fold}" for cell in cells]
    return Entry(
        cells=tuple(zip((cell.study for cell in cells), names, strict=True)),
        config_hash=cells[0].config_hash,
        fingerprint=plan.get_fingerprint(TrialConfig.model_validate(cells[0].config)),
        job=replace(job, runtime=runtime),
    )


def _check_studies(plan: Plan, settings: Settings) -> None:
    """Refuse a study whose course depends on when trials end; warn of classes that do not suffice.

    Run to their ends, trials that its scheduler would have stopped would be other facts, and give
    other proposals, under the same name.
    """
    with open_ledger_or_empty(settings.ledger) as ledger:
        progression = Progression(plan, settings.open_facts(ledger), record=False)
        while progression.list_new_cells():
            pass
        for name in plan.order:
            found = None
            proposer = progression.proposers.get(name)
            if name in progression.legs:
                scheduler = progression.legs[name].scheduler.name
                found = f"its scheduler {scheduler} stops trials while others run"
            elif proposer is not None and proposer.study.asynchronous:
                found = "round: asynchronous proposes whenever a worker is free"
            if found is not None and not progression.studies[name].complete:
                raise ConfigError(
                    plan.loaded.source.locate(f"studies.{name}"),
                    f"{found}, so its trials cannot leave: run it with `ablate run --study "
                    f"{name}`, or write cells of other studies by --study",
                )
        if settings.reads_data:
            for text in check_classes(plan, progression, settings.cache):
                print_text(f"warning: {text}", flush=True)


# --------------------------------------------------------------------------- ablate ledger import


def import_batch(folder: Path, out: Path, *, same_code: bool = False) -> Counter[str]:
    """Import a batch's folder into the ledger of an output folder.

    Args:
        same_code: results of other code at the same REVISION are taken as made by this, from now
            on.

    Returns:
        How many trials are new facts ("done", "failed"), facts before ("known", "further":
        evaluated further, "otherwise": with other numbers), "busy" or "unfinished".

    Raises:
        ConfigError: anything in it is not what it should be; nothing was written then.
        LedgerError: the ledger cannot be written, or the disk is full.
    """
    counts = Counter[str]()
    with (
        Ledger(out / "ledger.sqlite") as ledger,
        convert_disk_full(out),
        tempfile.TemporaryDirectory(dir=out, prefix=".import-") as draft,
    ):
        sources, results = Sources(ledger), _read_results(folder, ledger, counts)
        differing = _check_code(folder, results, sources, same_code=same_code)
        ledger.release_dead()
        for result in results:
            row = ledger.get_trial(result.trial_id)
            if row is None or row["status"] != "done":
                _copy_files(result, folder / TRIALS, Path(draft))
        with ledger.begin_transaction():  # all of it, or nothing
            if differing:
                hashes = {
                    each.trial_id: _collect_trained_code(each) for each in results if each.code
                }
                sources.accept_as_same_code(differing, hashes)
            counts.update(
                _record_result(e, ledger, sources, Path(draft), out / TRIALS) for e in results
            )
    for line in summarize_differences(differing):
        print_text(f"taken as the same code: {line}")
    finals = (result.last for result in results if isinstance(result.last, Final))
    versions = Counter(str(last.provenance.get("torch", torch.__version__)) for last in finals)
    for version in versions.keys() - {torch.__version__}:
        print_text(
            f"{versions[version]} trained with torch {version}, and {torch.__version__} is here"
        )
    return counts


def _read_results(folder: Path, ledger: Ledger, counts: Counter[str]) -> list[Result]:
    """Return the results of the trials that have ended, each as a trial of this ledger.

    Raises:
        ConfigError: anything is not what it should be.
    """
    if (folder / TRIALS).is_symlink() or not (folder / TRIALS).is_dir():
        fault = "it is a link" if (folder / TRIALS).is_symlink() else "there is no such folder"
        message = f"{fault}: copy the folder of `python -m trainables.jobs.batch` as a whole"
        raise ConfigError(str(folder / TRIALS), message)
    sweep_ids = [row["sweep_id"] for row in queries.list_sweeps(ledger)]
    known = {cell["trial_id"] for sweep_id in sweep_ids for cell in ledger.list_cells(sweep_id)}
    results = []
    for path in sorted(path for path in (folder / TRIALS).glob("*") if path.is_dir()):
        trial = locate_trial_folder(folder / TRIALS, path.name)
        if not os.path.lexists(trial / RESULT_NAME):
            counts["unfinished"] += 1
            continue
        result = read_result(trial)
        if result.trial_id != trial.name or result.trial_id not in known:
            raise ConfigError(
                str(trial),
                f"its result is of trial {result.trial_id}, which is none of the {len(known)} "
                "trials of this ledger or not the folder's own: copy each batch's folder as a "
                "whole, and give the --out that wrote the cells",
            )
        results.append(result)
    return results


def _collect_trained_code(result: Result) -> dict[str, str | None]:
    """Return component → hash of the code that trained; the ledger keeps the evaluator's apart."""
    return {name: value for name, value in result.hashes.items() if name != EVALUATOR}


def _check_code(
    folder: Path, results: Sequence[Result], sources: Sources, *, same_code: bool
) -> dict[str, Differing]:
    """Return the trials that other code made.

    Raises:
        ConfigError: there are some, or some that hide their code, and nobody said that it is the
            same.
    """
    differing = {}
    for result in results:
        if result.code is not None and (others := sources.find_changed(result.hashes)):
            status = "done" if isinstance(result.last, Final) else "failed"
            key, evaluator = (
                compute_source_key(_collect_trained_code(result)),
                result.hashes.get(EVALUATOR),
            )
            differing[result.trial_id] = Differing(others, status, key, (evaluator,))
    unsourced = sum(result.code is None for result in results)
    if unsourced and not same_code:
        raise ConfigError(
            str(folder),
            f"{unsourced} results do not say which code made them: where numbers are the same, "
            "give --same-code once",
        )
    if not same_code and (error := build_refusal(differing)):
        raise error
    return differing


def _copy_files(result: Result, trials: Path, drafts: Path) -> None:
    """Copy the files of a trial aside, each as its result says that it was written.

    Raises:
        ConfigError: one is a link, no file, or not as it was written.
    """
    source, draft = (locate_trial_folder(each, result.trial_id) for each in (trials, drafts))
    draft.mkdir()
    log = {LOG: None} if os.path.lexists(source / LOG) else {}
    for name, sha256 in {**log, **result.files}.items():
        try:
            with (
                open_regular(source / name, most_bytes=MOST_BYTES, follow_links=False) as file,
                (draft / name).open("wb") as copy,
            ):
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
            if sha256 in (None, digest(draft / name)):
                continue
            fault = "it is not as it was written"
        except OSError as error:
            if is_full(error):
                raise
            fault = f"it cannot be read ({error.strerror})"
        remedy = "copy the folder again, or remove this trial's and start the batch again"
        raise ConfigError(str(source / name), f"{fault}: {remedy}")


def _move_files(draft: Path, target: Path) -> None:
    """Move the files of a trial to where a run would have left them; `final.json` comes last,
    without which the folder is none of a finished trial.

    Raises:
        ConfigError: another process holds the folder, or it cannot be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / LOCK, timeout=LOCK_SECONDS):
            for path in sorted(draft.iterdir(), key=lambda path: path.name == RESULT):
                path.replace(target / path.name)
            shutil.rmtree(target / CHECKPOINTS, ignore_errors=True)
    except Timeout:
        raise ConfigError(
            str(target), "it is locked by another process: end that process, and import again"
        ) from None
    except OSError as error:
        if is_full(error):
            raise
        raise ConfigError(
            str(error.filename2 or error.filename or target),
            f"it cannot be written ({error.strerror}): move away what lies there, and import again",
        ) from error


def _record_result(
    result: Result, ledger: Ledger, sources: Sources, drafts: Path, trials: Path
) -> str:
    """Record what a result says of its trial, and return the name by which it counts."""
    trial_id, last = result.trial_id, result.last
    claim = ledger.claim(
        trial_id,
        result.config_hash,
        result.seed,
        result.config,
        Owner.from_this_process(),
        retry_failed=isinstance(last, Final),  # a result is more than a failure
        source=None
        if result.code is None
        else sources.record_sources(_collect_trained_code(result)),
    )
    if claim == "done" and isinstance(last, Final):
        return _record_evaluations(result, last, ledger)
    if claim != "mine":
        return "busy" if claim == "busy" else "known"
    _move_files(locate_trial_folder(drafts, trial_id), locate_trial_folder(trials, trial_id))
    epochs = [epoch.model_dump() for epoch in result.epochs]
    ledger.delete_epochs(trial_id)  # the beginning of another course of the same trial
    if isinstance(last, Final):
        evaluator = result.hashes.get(EVALUATOR)
        ledger.record_final(trial_id, last.model_dump(), epochs, evaluator=evaluator)
        return "done"
    ledger.record_epochs(trial_id, epochs)
    ledger.release(trial_id, "failed", last.reason)
    return "failed"


def _record_evaluations(result: Result, last: Final, ledger: Ledger) -> str:
    """Record what a result says of a trial that is a fact: splits and metrics that it lacks.

    Only by the same weights: trained on another processor they may be others, and one trial's
    validation would stand beside another's test.
    """
    trial_id = result.trial_id
    known, row = ledger.get_evaluations(trial_id, last.evaluator), ledger.get_trial(trial_id) or {}
    pairs = [
        (known.get(split, {}).get(name), value)
        for split, metrics in last.evaluations.items()
        for name, value in metrics.items()
    ]
    if all(recorded is not None for recorded, _ in pairs):
        return "known"
    same = all(recorded in (None, value) for recorded, value in pairs)
    if not same or row["best_epoch"] != last.best_epoch:
        return "otherwise"
    if ledger.claim_evaluation(trial_id, Owner.from_this_process()) != "mine":
        return "busy"
    evaluator = result.hashes.get(EVALUATOR)
    ledger.record_final(trial_id, last.model_dump(), trained=False, evaluator=evaluator)
    return "further"
