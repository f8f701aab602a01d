"""Export trials to a file that runs without a driver, and import their results.

An export claims nothing: a run at the same time trains these trials too, and the first result
counts. Proposals of a search are recorded as in a run, so all files belong to one search. An import
checks all results before it writes, and then records them one after the other; after an
interruption the same command continues. Results of other code are recorded as such, and the next
`ablate run` asks about them.
"""

import os
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from ablate.engine.preflight import (
    SplitLoader,
    check_classes,
    check_sources,
    preview_progression,
)
from ablate.engine.settings import Settings
from ablate.ledger import queries
from ablate.ledger.facts import Sources
from ablate.ledger.ledger import Ledger, Owner, is_held
from ablate.ledger.schema import convert_disk_full, is_full
from ablate.plan.plan import Cell, Plan
from ablate.sweep.trial_queue import build_training_job
from trainables.core.components import EVALUATOR
from trainables.core.runtime import CHECKPOINTS, LOCK, LOG, RESULT, TRIALS, locate_trial_folder
from trainables.jobs.request import Job
from trainables.jobs.trial_file import (
    MOST_BYTES,
    RESULT_NAME,
    Entry,
    Result,
    SweepInfo,
    digest,
    read_result,
    write_cells,
)
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError
from trainables.words.files import join_inside, open_regular
from trainables.words.terminal import print_text

LOCK_SECONDS = 5.0  # how long to wait for another process to leave a trial's folder


def export_cells(plan: Plan, settings: Settings, to: Path) -> Counter[str]:
    """Write to the file `to` the trials that can start now; write no file if there are none.

    Returns:
        The counts of `list_ready_trials`.

    Raises:
        ConfigError: as `list_ready_trials`.
        OSError: the file cannot be written.
    """
    entries, counts = list_ready_trials(plan, settings)
    if entries:
        write_entries(plan, entries, to)
    return counts


def write_entries(plan: Plan, entries: Sequence[Entry], to: Path) -> None:
    """Write trials of a plan to the file `to`."""
    sweep = SweepInfo(plan.sweep_id, plan.spec.name, plan.spec.checkpoints == "clean")
    write_cells(to, sweep, entries)


def list_ready_trials(
    plan: Plan, settings: Settings, *, evaluates: bool = False
) -> tuple[list[Entry], Counter[str]]:
    """Record the sweep's cells and proposals, and return the trials that can start now.

    Args:
        evaluates: whether to list finished trials that lack an evaluation, too, because they will
            run in their own folders in `settings.out`.

    Returns:
        The trials, and counts: "trials" that can start, and trials left out: "known" (finished),
        "busy" (a driver runs them), "evaluations" (trained, and lacking an evaluation) and "later"
        (cells that become known only by results of other cells).

    Raises:
        ConfigError: a batch cannot run a study, there are too few classes, or recorded results come
            from another version of the code.
    """
    _check_studies(plan, settings)
    counts, entries = Counter[str](), list[Entry]()
    with Ledger(settings.ledger) as ledger:
        # record the sweep with its cells and proposals
        progression = settings.begin_sweep(plan, ledger)
        trials: dict[str, list[Cell]] = {}  # trial id → the cells that share the trial
        while cells := progression.list_new_cells():
            ledger.put_cells(plan.sweep_id, [vars(cell) for cell in cells])
            for cell in cells:
                if cell.error is None:  # `ablate run` records the invalid ones as failed
                    trials.setdefault(cell.trial_id, []).append(cell)
        progression.record_looks()
        facts = progression.facts
        for line in facts.reconcile_code_versions(trials, same_code=settings.same_code):
            print_text(f"results of another version of the code are accepted: {line}")
        # count the cells that become known only by results of other cells
        states = [progression.studies[name] for name in plan.order]
        counts["later"] = sum(s.size - len(s.cells) for s in states if not s.blocked)
        for state in states:
            if state.blocked:
                print_text(f"The study {state.name} cannot continue: {state.blocked}")
        # choose the trials that can start now
        job_settings = settings.build_job_settings(plan)
        for trial_id, cells in trials.items():
            if all(map(progression.is_settled, cells)):
                counts["known"] += 1
            elif is_held(ledger.get_trial(trial_id)):
                counts["busy"] += 1
            elif facts[trial_id].status == "done" and not evaluates:
                counts["evaluations"] += 1
            else:
                training = build_training_job(cells, job_settings, facts.sources)
                job = progression.choose_job(cells, training, settings.trials)
                if job is not None:
                    entries.append(_build_entry(plan, cells, job))
    counts["trials"] = len(entries)
    return entries, counts


def _build_entry(plan: Plan, cells: Sequence[Cell], job: Job) -> Entry:
    """Return a trial's entry in the exported file; the entry has no path of this machine."""
    runtime = replace(job.runtime, cache_dir=Path("cache"), trial_dir=None, run=None)
    studies = [cell.study for cell in cells]  # several studies may share a trial
    names = [cell.cell if cell.fold is None else f"{cell.cell}.{cell.fold}" for cell in cells]
    return Entry(
        cells=tuple(zip(studies, names, strict=True)),
        config_hash=cells[0].config_hash,
        fingerprint=plan.get_fingerprint(TrialConfig.model_validate(cells[0].config)),
        job=replace(job, runtime=runtime),
    )


def _check_studies(plan: Plan, settings: Settings) -> None:
    """Refuse unfinished studies that need a driver, results of other code, and too few classes.

    A driver may stop a trial early, or propose one whenever another ends; a batch does neither.
    """
    with preview_progression(plan, settings) as progression:
        for name in plan.order:
            proposer, reason = progression.proposers.get(name), ""
            if name in progression.scheduled_studies:
                scheduler = progression.scheduled_studies[name].scheduler.name
                reason = f"its scheduler {scheduler} stops trials while others run"
            elif proposer is not None and proposer.study.asynchronous:
                reason = "`round: asynchronous` proposes whenever a worker is free"
            if reason and not progression.studies[name].complete:
                raise ConfigError(
                    plan.loaded.source.locate(f"studies.{name}"),
                    f"a batch cannot run this study, because {reason}",
                    f"Run `ablate run --study {name}`, or name other studies by --study",
                )
        check_sources(progression, same_code=settings.same_code)
        if settings.reads_data:
            check_classes(plan, progression, SplitLoader.without_pixels(settings.cache))


def import_batch(folder: Path, out: Path, trial_ids: Collection[str] | None = None) -> Counter[str]:
    """Record in the ledger of `out` the results that a batch (`trainables.jobs.batch`) wrote.

    Args:
        folder: the batch's folder; with `out`, the batch has trained in the trials' own folders.
        trial_ids: the trials to record; None for all trials in `folder`.

    Returns:
        Counts of trials: new results ("done", "failed"), "known" before, "busy" (a driver runs
        them), "unfinished" in the batch.

    Raises:
        ConfigError: a result is damaged or belongs to no trial of the ledger, and nothing was
            written; or a file of a trial is damaged, and the trials before it were recorded.
        LedgerError: the ledger cannot be written, or the disk is full.
    """
    counts = Counter[str]()
    with Ledger(out / "ledger.sqlite") as ledger, convert_disk_full(out):
        results = _read_results(folder / TRIALS, ledger, trial_ids)
        ledger.release_dead()
        for trial, result in results.items():
            kind = "unfinished" if result is None else _record_result(trial, result, out, ledger)
            counts[kind] += 1
    return counts


def _read_results(
    trials: Path, ledger: Ledger, names: Collection[str] | None
) -> dict[Path, Result | None]:
    """Map trial folders in `trials` to their checked results; None if a trial has not ended."""
    if trials.is_symlink() or not trials.is_dir():
        raise ConfigError(
            str(trials),
            "the folder is a link" if trials.is_symlink() else "there is no such folder",
            "Copy the folder of `python -m trainables.jobs.batch` as a whole",
        )
    if names is None:
        names = [path.name for path in trials.glob("*") if path.is_dir()]
    sweep_ids = [row["sweep_id"] for row in queries.list_sweeps(ledger)]
    trial_ids = {cell["trial_id"] for sweep_id in sweep_ids for cell in ledger.list_cells(sweep_id)}
    results: dict[Path, Result | None] = {}
    for name in sorted(names):
        trial = locate_trial_folder(trials, name)
        result = read_result(trial) if os.path.lexists(trial / RESULT_NAME) else None
        if result and (result.trial_id != trial.name or result.trial_id not in trial_ids):
            raise ConfigError(
                str(trial),
                f"this folder has a result of trial {result.trial_id}. That trial has another "
                f"folder, or is none of the ledger's {len(trial_ids)} trials",
                "Copy each batch's folder as a whole, and give the same --out as to `ablate cells`",
            )
        results[trial] = result
    return results


def _record_result(trial: Path, result: Result, out: Path, ledger: Ledger) -> str:
    """Copy a trial's files from a batch to `out`, and record its result in the ledger.

    Returns:
        "done" or "failed"; "known" or "busy" (a driver runs the trial) if nothing was recorded.
    """
    trial_id, last = result.trial_id, result.last
    row = ledger.get_trial(trial_id)
    # a success replaces a recorded failure; a failure replaces neither a result nor progress
    lasting = ("done",) if result.is_done else ("done", "failed")
    target = locate_trial_folder(out / TRIALS, trial_id)
    if row and row["status"] in lasting:
        if trial == target and result.is_done and not is_held(row):  # evaluated further
            evaluator = result.hashes.get(EVALUATOR)
            ledger.record_final(trial_id, last, trained=False, evaluator=evaluator)
        return "known"
    if is_held(row):
        return "busy"
    if trial != target:
        has_begun = bool(ledger.list_epochs(trial_id)) or any((target / CHECKPOINTS).glob("*"))
        if has_begun and not result.is_done:  # the next run goes on with it
            return "known"
        _copy_files(result, trial, target)
    training_code = {name: value for name, value in result.hashes.items() if name != EVALUATOR}
    source = None if result.code is None else Sources(ledger).record_sources(training_code)
    owner, epochs = Owner.from_this_process(), result.epochs
    identity = trial_id, result.config_hash, result.seed, result.config
    with ledger.begin_transaction():
        claim = ledger.claim(*identity, owner, retry_failed=True, source=source)
        if claim != "mine":  # a driver was faster
            return "busy" if claim == "busy" else "known"
        ledger.delete_epochs(trial_id)  # those of a driver's interrupted attempt
        if result.is_done:
            evaluator = result.hashes.get(EVALUATOR)
            ledger.record_final(trial_id, last, epochs, evaluator=evaluator)
            return "done"
        ledger.record_epochs(trial_id, epochs)
        ledger.release(trial_id, "failed", last["reason"])
        return "failed"


def _copy_files(result: Result, source: Path, target: Path) -> None:
    """Copy a trial's files from a batch's folder to a run's, and remove old checkpoints there.

    `final.json` is copied last, because it marks a finished trial.

    Raises:
        ConfigError: another process uses the folder, a file does not match its digest, or the
            folder cannot be written.
    """
    digests: dict[str, str | None] = dict(result.files)
    if os.path.lexists(source / LOG):
        digests[LOG] = None  # a log has no digest to check
    try:
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / LOCK, timeout=LOCK_SECONDS):
            for name in sorted(digests, key=lambda name: name == RESULT):  # final.json last
                draft, original = target / f"{name}.tmp", join_inside(source, name)
                with (
                    open_regular(original, most_bytes=MOST_BYTES, follow_links=False) as file,
                    draft.open("wb") as copy,
                ):
                    shutil.copyfileobj(file, copy)
                    copy.flush()
                    os.fsync(copy.fileno())
                if digests[name] not in (None, digest(draft)):
                    draft.unlink()
                    raise ConfigError(
                        str(original),
                        "the file was changed after the batch wrote it",
                        "Copy it again, or delete this trial's folder and start the batch again",
                    )
                draft.replace(target / name)
            shutil.rmtree(target / CHECKPOINTS, ignore_errors=True)
    except Timeout:
        raise ConfigError(
            str(target),
            "another process has locked the folder",
            "End that process, and import again",
        ) from None
    except OSError as error:
        if is_full(error):
            raise  # the caller explains a full disk
        raise ConfigError(
            str(error.filename or target),
            f"the trial cannot be copied ({error.strerror})",
            "Move this file away, and import again",
        ) from error
