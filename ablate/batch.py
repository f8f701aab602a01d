"""Trials that run without a driver: `ablate cells` exports their jobs, `ablate ledger import` takes
what came of them.

An export claims nothing: whoever runs the sweep meanwhile trains these trials too, and the first
result stands. Proposals of a search are recorded before they leave, as a run does, so that all
files are rounds of one search. An import checks everything that it finds, then copies files, and
records all trials in one transaction: broken off anywhere, the same command goes on.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from ablate.engine.preflight import as_it_is, check_classes
from ablate.engine.settings import Settings
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.schema import is_full, room
from ablate.ledger.sources import Differing, Sources, source_key, summary
from ablate.plan.plan import Cell, Plan
from ablate.sweep.progression import Progression
from ablate.sweep.queue import training_job
from ablate.values.terminal import say
from trainables.core.components import EVALUATOR
from trainables.core.trial_folder import CHECKPOINTS, LOCK, LOG, RESULT, TRIALS, trial_folder
from trainables.errors import ConfigError
from trainables.jobs.batch.files import (
    MOST_BYTES,
    RESULT_NAME,
    Entry,
    Final,
    Result,
    Source,
    digest,
    read_mark,
    read_result,
    write_cells,
)
from trainables.jobs.request import Job
from trainables.machine.files import open_regular
from trainables.trial import TrialConfig

LOCK_SECONDS = 5.0  # that another process may hold a trial's folder
MOST_IN_ALL = 2**30  # bytes of the results of a batch, which are held in memory
PROVENANCE = ("versions", "git_commit", "git_dirty")  # of the driver's, kept in the file


@dataclass
class Exported:
    """What is in the file of cells, and what is not.

    trials: in it; none: no file was written. again: of those, the trained ones that lack an
    evaluation. known: trials with nothing left to do. ensembles: folds that are done and lack
    theirs, which is a run's. busy: under way by a driver. later: cells that follow from results.
    blocked: study → why it can go no further.
    """

    trials: int = 0
    again: int = 0
    known: int = 0
    ensembles: int = 0
    busy: int = 0
    later: int = 0
    blocked: dict[str, str] = field(default_factory=dict)


def export_cells(plan: Plan, settings: Settings, to: Path) -> Exported:
    """Write the trials that can start now to a file.

    Raises:
        ConfigError: a study that no batch can run as a run does, classes that do not suffice,
            records of other code, or a file that cannot be written.
    """
    with as_it_is(settings.ledger) as ledger:
        progression = Progression(plan, settings.facts(ledger), record=False)
        while progression.advance():
            pass
        _check_studies(plan, progression)
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
        exported, entries = _list_entries(plan, settings, progression, trials)
    if entries:
        provenance = {k: v for k, v in settings.provenance.items() if k in PROVENANCE}
        is_clean = plan.spec.checkpoints == "clean"
        source = Source(plan.sweep_id, plan.spec.name, is_clean, provenance)
        try:
            write_cells(to, source, entries)
        except OSError as error:
            found = f"{to}, which cannot be written ({error.strerror or error})"
            raise ConfigError("--to", found, "a writable file") from error
    return exported


def _check_studies(plan: Plan, progression: Progression) -> None:
    """Refuse a study whose course depends on when trials end.

    Run to their ends, trials that its scheduler would have stopped would be other facts, and give
    other proposals, under the same name.
    """
    for name in plan.order:
        proposer = progression.proposers.get(name)
        if progression.studies[name].complete:
            continue
        if name in progression.legs:
            key = "scheduler"
            found = f"{progression.legs[name].scheduler.name}, which stops trials while others run"
        elif proposer is not None and proposer.study.asynchronous:
            key, found = "round", "asynchronous, which proposes whenever a worker is free"
        else:
            continue
        raise ConfigError(
            f"{plan.loaded.source.locate(f'studies.{name}')}.{key}",
            found,
            "for `ablate cells` studies whose trials run to their ends, in rounds that are files",
            "Run this study with `ablate run --study`, or write cells of others by --study",
        )


def _list_entries(
    plan: Plan,
    settings: Settings,
    progression: Progression,
    trials: Mapping[str, Sequence[Cell]],
) -> tuple[Exported, list[Entry]]:
    states = [progression.studies[name] for name in plan.order]
    exported = Exported(
        later=sum(state.size - len(state.cells) for state in states if not state.blocked),
        blocked={state.name: state.blocked for state in states if state.blocked},
    )
    entries: list[Entry] = []
    for trial_id, cells in trials.items():
        row, fact = progression.facts.ledger.trial(trial_id), progression.facts[trial_id]
        job = training_job(cells, settings.jobs(plan), progression.facts.sources)
        if all(map(progression.settled, cells)):
            exported.known += 1
        elif row and row["owner"] and Owner.parse(row["owner"]).alive(row["heartbeat"]):
            exported.busy += 1
        elif fact.status == "done" and not fact.lacking(job.evaluate, job.metrics):
            exported.ensembles += 1
        else:  # one that is done is only read where its folder is, elsewhere trained first
            exported.again += fact.status == "done"
            entries.append(_build_entry(plan, cells, job))
    exported.trials = len(entries)
    return exported, entries


def _build_entry(plan: Plan, cells: Sequence[Cell], job: Job) -> Entry:
    # Where files lie here is nothing to the machine that runs it, nor for others to read.
    runtime = replace(job.runtime, cache_dir=Path("cache"), trial_dir=None, run=None)
    folds = ["" if cell.fold is None else f".{cell.fold}" for cell in cells]
    return Entry(
        cells=tuple(
            (cell.study, cell.cell + fold) for cell, fold in zip(cells, folds, strict=True)
        ),
        config_hash=cells[0].config_hash,
        fingerprint=plan.fingerprint(TrialConfig.model_validate(cells[0].config)),
        job=replace(job, runtime=runtime),
    )


# --------------------------------------------------------------------------- ablate ledger import


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
    torch: Counter[str] = field(default_factory=Counter)


def import_batch(folder: Path, out: Path, *, same_code: bool = False) -> Imported:
    """Import a batch's folder into the ledger of an output folder.

    Args:
        same_code: results of other code at the same REVISION are taken as made by this, from now
            on.

    Raises:
        ConfigError: anything in it is not what it should be; nothing was written then.
        LedgerError: the ledger cannot be written, or the disk is full.
    """
    with Ledger(out / "ledger.sqlite") as ledger:
        sources = Sources(ledger)
        imported = Imported(*read_mark(folder))
        results = _read_results(folder, ledger, imported)
        differing = _check_code(folder, results, sources, same_code=same_code)
        imported.same = tuple(summary(differing))
        ledger.release_dead()
        with room(out):
            wanted = {each.trial_id for each in results if _is_wanted(ledger, each)}
            targets = {each: trial_folder(out / TRIALS, each) for each in sorted(wanted)}
            for result in results:
                if result.trial_id in wanted:
                    source = trial_folder(folder / TRIALS, result.trial_id)
                    _copy_trial(result, source, targets[result.trial_id])
            with ledger.write():  # all of it, or nothing
                if differing:
                    hashes = {each.trial_id: _trained_code(each) for each in results if each.code}
                    sources.accept(differing, hashes)
                for result in results:
                    if result.trial_id not in wanted and _is_wanted(ledger, result):
                        imported.busy += 1  # a driver that had it has just left it
                    else:
                        _record(result, ledger, sources, imported)
    return imported


def _read_results(folder: Path, ledger: Ledger, imported: Imported) -> list[Result]:
    """Return the results of the trials that have ended, each checked with its files.

    Raises:
        ConfigError: anything is not what it should be.
    """
    sweeps = {row["sweep_id"]: row["name"] for row in queries.sweeps(ledger)}
    if imported.sweep_id not in sweeps:
        known = ", ".join(f"{name} ({sweep_id})" for sweep_id, name in sweeps.items()) or "none"
        raise ConfigError(
            str(folder),
            f"trials of sweep {imported.name} ({imported.sweep_id})",
            f"of one that {ledger.path} knows: {known}",
            "Give the --out whose ledger wrote the cells (`ablate cells SPEC --out …`)",
        )
    cells = {cell["trial_id"] for cell in ledger.cells(imported.sweep_id)}
    if (folder / TRIALS).is_symlink():
        raise ConfigError(str(folder / TRIALS), "a symbolic link", "a folder", "Copy it as a whole")
    results, size = list[Result](), 0
    for path in sorted(path for path in (folder / TRIALS).glob("*") if path.is_dir()):
        trial = trial_folder(folder / TRIALS, path.name)
        if not os.path.lexists(trial / RESULT_NAME):
            imported.unfinished += 1
            continue
        result = read_result(trial)
        size += (trial / RESULT_NAME).lstat().st_size
        fault = None
        if (result.sweep_id, result.trial_id) != (imported.sweep_id, trial.name):
            fault = f"of trial {result.trial_id} of sweep {result.sweep_id}", "in its own folder"
        elif result.trial_id not in cells:
            fault = f"of trial {result.trial_id}", f"of the {len(cells)} trials of this ledger"
        elif size > MOST_IN_ALL:
            fault = f"and those before it, of more than {MOST_IN_ALL:,} bytes", "fewer at once"
        if fault is not None:
            remedy = "Copy each batch's folder as a whole, and give the --out that wrote the cells"
            raise ConfigError(
                str(trial / RESULT_NAME), f"a result {fault[0]}", f"one {fault[1]}", remedy
            )
        _check_files(trial, result)
        results.append(result)
        if isinstance(result.last, Final) and (torch := result.last.provenance.get("torch")):
            imported.torch[str(torch)] += 1
    return results


def _check_files(trial: Path, result: Result) -> None:
    """Raise ConfigError for files of a trial that are links, no files, or not as written."""
    log = {LOG: None} if os.path.lexists(trial / LOG) else {}
    for name, sha256 in {**log, **result.files}.items():
        try:
            open_regular(trial / name, most_bytes=MOST_BYTES, follow_links=False).close()
            if sha256 in (None, digest(trial / name)):
                continue
            found = "a file that is not as it was written"
        except OSError as error:
            found = f"no file of the trial ({error.strerror})"
        remedy = "Copy the folder again, or remove this trial's and start the batch again"
        raise ConfigError(str(trial / name), found, f"the one that {RESULT_NAME} names", remedy)


def _trained_code(result: Result) -> dict[str, str | None]:
    """Return component → hash of the code that trained; the ledger keeps the evaluator's apart."""
    hashes = {} if result.code is None else dict(result.code.hashes)
    hashes.pop(EVALUATOR, None)
    return hashes


def _evaluator(result: Result) -> str | None:
    return None if result.code is None else result.code.hashes.get(EVALUATOR)


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
        if result.code is not None and (others := sources.others(result.code.hashes)):
            status = "done" if isinstance(result.last, Final) else "failed"
            key, evaluator = source_key(_trained_code(result)), _evaluator(result)
            differing[result.trial_id] = Differing(others, status, key, (evaluator,))
    unsourced = sum(result.code is None for result in results)
    if same_code or not (differing or unsourced):
        return differing
    found = f"results of other code: {'; '.join(summary(differing))}"
    if unsourced:
        found = f"{unsourced} results that do not say which code made them"
    raise ConfigError(
        str(folder),
        found,
        "results of the code that is here",
        "Import with the code that wrote the cells, or write them anew with `ablate cells`; where "
        "numbers are the same, give --same-code once",
    )


def _is_wanted(ledger: Ledger, result: Result) -> bool:
    """Return whether the files of a trial are to come, as a claim of it would say "mine"."""
    row = ledger.trial(result.trial_id)
    if row is None:
        return True
    if row["status"] == "running" and row["owner"] is not None:
        return False  # owners that are gone have been released
    is_final = isinstance(result.last, Final)  # a result is more than a failure
    return row["status"] != "done" and (row["status"] != "failed" or is_final)


def _record(result: Result, ledger: Ledger, sources: Sources, imported: Imported) -> None:
    trial_id, last, owner = result.trial_id, result.last, Owner.me()
    is_final, is_known = isinstance(last, Final), ledger.trial(trial_id) is not None
    claim = ledger.claim(
        trial_id,
        result.config_hash,
        result.seed,
        result.config,
        owner,
        retry_failed=is_final,
        source=None if result.code is None else sources.record(_trained_code(result)),
    )
    if claim == "busy":
        imported.busy += 1
    elif claim == "done" and isinstance(last, Final):
        _record_evaluations(result, last, ledger, imported)
    elif claim != "mine":
        imported.known += 1
    else:
        epochs = [epoch.model_dump() for epoch in result.epochs]
        if is_known:  # the beginning of another course of the same trial
            ledger.drop_epochs(trial_id)
        if isinstance(last, Final):
            ledger.record_final(trial_id, last.model_dump(), epochs, evaluator=_evaluator(result))
            imported.done += 1
        else:
            ledger.record_epochs(trial_id, epochs)
            ledger.release(trial_id, "failed", last.reason)
            imported.failed += 1


def _record_evaluations(result: Result, last: Final, ledger: Ledger, imported: Imported) -> None:
    """Record what a result says of a trial that is a fact: splits and metrics that it lacks.

    Only by the same weights: trained on another processor they may be others, and one trial's
    validation would stand beside another's test.
    """
    trial_id = result.trial_id
    known, row = ledger.evaluations(trial_id, last.evaluator), ledger.trial(trial_id) or {}
    pairs = [
        (known.get(split, {}).get(name), value)
        for split, metrics in last.evaluations.items()
        for name, value in metrics.items()
    ]
    if all(recorded is not None for recorded, _ in pairs):
        imported.known += 1
    elif row["best_epoch"] != last.best_epoch or any(
        recorded not in (None, value) for recorded, value in pairs
    ):
        imported.otherwise += 1
    elif ledger.claim_evaluation(trial_id, Owner.me()) != "mine":
        imported.busy += 1
    else:
        event = last.model_dump()
        ledger.record_final(trial_id, event, trained=False, evaluator=_evaluator(result))
        imported.further += 1


def _copy_trial(result: Result, source: Path, target: Path) -> None:
    """Copy the files of a trial to where a run would have left them; `final.json` comes last,
    without which the folder is none of a finished trial.

    Raises:
        ConfigError: they cannot be written, or changed since they were checked.
    """
    names = sorted(result.files, key=lambda name: name == RESULT)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / LOCK, timeout=LOCK_SECONDS):
            for name in [LOG, *names]:
                if os.path.lexists(source / name):
                    _copy_file(source / name, target / name, result.files.get(name))
            shutil.rmtree(target / CHECKPOINTS, ignore_errors=True)
            handle = os.open(target, os.O_RDONLY)
            os.fsync(handle)  # before the ledger says that they are there
            os.close(handle)
    except Timeout:
        found, remedy = "a folder locked by another process", "End that process, and import again"
        raise ConfigError(str(target), found, "it free", remedy) from None
    except OSError as error:
        if is_full(error):
            raise
        path, found = str(error.filename or target), f"{error.strerror or error}"
        remedy = "Move away what lies there, and import again"
        raise ConfigError(path, found, "a place that can be written", remedy) from error


def _copy_file(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a regular file whole or not at all, if its bytes are those that were checked."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with (
            open_regular(source, most_bytes=MOST_BYTES, follow_links=False) as file,
            temporary.open("wb") as copy,
        ):
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
        if sha256 not in (None, digest(temporary)):
            found, remedy = "a file that changes while it is imported", "Import it again later"
            raise ConfigError(str(source), found, "one that stays as it was written", remedy)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
