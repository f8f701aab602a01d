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
from trainables.core import components
from trainables.core.components import EVALUATOR
from trainables.core.trial_folder import CHECKPOINTS, LOCK, LOG, RESULT, TRIALS, trial_folder
from trainables.errors import ConfigError
from trainables.jobs.batch import files
from trainables.jobs.batch.files import RESULT_NAME, Entry, Event, Place, Result, Source
from trainables.jobs.request import Job
from trainables.machine.files import inside, open_regular
from trainables.trial import TrialConfig

LOCK_SECONDS = 5.0  # that another process may hold a trial's folder
MOST_IN_ALL = 2**30  # bytes of the results of a batch, which are held in memory
PROVENANCE = ("versions", "git_commit", "git_dirty")  # of the driver's, kept in the file


# ------------------------------------------------------------------------------------ ablate cells


@dataclass(frozen=True)
class Exported:
    """What is in the file of cells, and what is not.

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
        return _write_trials(plan, settings, progression, trials, to)


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


def _write_trials(
    plan: Plan,
    settings: Settings,
    progression: Progression,
    trials: Mapping[str, Sequence[Cell]],
    to: Path,
) -> Exported:
    entries: list[Entry] = []
    counts: Counter[str] = Counter()
    for trial_id, cells in trials.items():
        row = progression.facts.ledger.trial(trial_id)
        job = training_job(cells, settings.jobs(plan), progression.facts.sources)
        fact = progression.facts[trial_id]
        if all(map(progression.settled, cells)):
            counts["known"] += 1
        elif row and row["owner"] and Owner.parse(row["owner"]).alive(row["heartbeat"]):
            counts["busy"] += 1
        elif fact.status == "done" and not fact.lacking(job.evaluate, job.metrics):
            counts["ensembles"] += 1
        else:  # one that is done is only read where its folder is, elsewhere trained first
            counts["again"] += fact.status == "done"
            entries.append(_build_entry(plan, cells, job))
    if entries:
        provenance = {
            name: settings.provenance[name] for name in PROVENANCE if name in settings.provenance
        }
        clean = plan.spec.checkpoints == "clean"
        try:
            files.write_cells(to, Source(plan.sweep_id, plan.spec.name, clean, provenance), entries)
        except OSError as error:
            raise ConfigError(
                "--to",
                f"{to}, which cannot be written ({error.strerror or error})",
                "a writable file",
            ) from error
    states = [progression.studies[name] for name in plan.order]
    return Exported(
        trials=len(entries),
        again=counts["again"],
        known=counts["known"],
        ensembles=counts["ensembles"],
        busy=counts["busy"],
        later=sum(state.size - len(state.cells) for state in states if not state.blocked),
        blocked={state.name: state.blocked for state in states if state.blocked},
    )


def _build_entry(plan: Plan, cells: Sequence[Cell], job: Job) -> Entry:
    # Where files lie here is nothing to the machine that runs it, nor for others to read.
    runtime = replace(job.runtime, cache_dir=Path("cache"), trial_dir=None, run=None)
    return Entry(
        places=tuple(Place(cell.study, cell.cell, cell.fold) for cell in cells),
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


@dataclass(frozen=True)
class Trial:
    """A trial that has ended in a batch, and what its result says."""

    folder: Path
    result: Result
    epochs: list[Event]
    last: Event

    @property
    def trial_id(self) -> str:
        return self.result.trial_id

    @property
    def is_final(self) -> bool:
        return bool(self.last["event"] == "final")

    @property
    def hashes(self) -> dict[str, str | None]:
        """Component → hash of the code that trained it; the ledger keeps the evaluator's apart."""
        hashes = {} if self.result.code is None else self.result.code.hashes
        return {name: value for name, value in hashes.items() if name != EVALUATOR}

    @property
    def evaluator(self) -> str | None:
        return None if self.result.code is None else self.result.code.hashes.get(EVALUATOR)


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
        done = Imported(*files.read_mark(folder))
        trials = _read_trials(folder, ledger, done)
        differing = _check_code(folder, trials, sources, same_code=same_code)
        done.same = tuple(summary(differing))
        ledger.release_dead()
        with room(out):
            wanted = [trial for trial in trials if _is_wanted(ledger, trial)]
            folders = [trial_folder(out / TRIALS, trial.trial_id) for trial in wanted]
            for trial, to in zip(wanted, folders, strict=True):
                _copy_trial(trial, to)
            with ledger.write():  # all of it, or nothing
                if differing:
                    hashes = {trial.trial_id: trial.hashes for trial in trials if trial.hashes}
                    sources.accept(differing, hashes)
                for trial in trials:
                    if trial not in wanted and _is_wanted(ledger, trial):
                        done.busy += 1  # a driver that had it has just left it
                    else:
                        _record(trial, ledger, sources, done)
    return done


def _read_trials(folder: Path, ledger: Ledger, done: Imported) -> list[Trial]:
    """Return the trials that have ended, each checked.

    Raises:
        ConfigError: anything is not what it should be.
    """
    sweeps = {row["sweep_id"]: row["name"] for row in queries.sweeps(ledger)}
    if done.sweep_id not in sweeps:
        known = ", ".join(f"{name} ({sweep_id})" for sweep_id, name in sweeps.items()) or "none"
        raise ConfigError(
            str(folder),
            f"trials of sweep {done.name} ({done.sweep_id})",
            f"of one that {ledger.path} knows: {known}",
            "Give the --out whose ledger wrote the cells (`ablate cells SPEC --out …`)",
        )
    cells = {cell["trial_id"] for cell in ledger.cells(done.sweep_id)}
    if (folder / TRIALS).is_symlink():
        raise ConfigError(
            str(folder / TRIALS), "a symbolic link", "a folder", "Copy the folder as a whole"
        )
    trials, size = list[Trial](), 0
    for path in sorted(path for path in (folder / TRIALS).glob("*") if path.is_dir()):
        trial = files.trial_folder(folder, path.name)
        if not os.path.lexists(trial / RESULT_NAME):
            done.unfinished += 1
            continue
        trials.append(Trial(trial, *files.read_result(trial)))
        size += (trial / RESULT_NAME).lstat().st_size
        if size > MOST_IN_ALL:
            raise ConfigError(
                str(folder),
                f"results of more than {MOST_IN_ALL:,} bytes together",
                "fewer",
                "Import it in parts: copy some of its trials with batch.jsonl to another folder",
            )
        _check_trial(trials[-1], done.sweep_id, cells)
        if version := str(trials[-1].last.get("provenance", {}).get("torch", "")):
            done.torch[version] += 1
    return trials


def _check_trial(trial: Trial, sweep_id: str, cells: set[str]) -> None:
    """Raise ConfigError for another trial than folder, sweep or identity say, epochs that no such
    trial has, and files that are not as they were written."""
    path, result, last = str(trial.folder / RESULT_NAME), trial.result, trial.last
    if (result.sweep_id, result.trial_id) != (sweep_id, trial.folder.name):
        raise ConfigError(
            path,
            f"the result of trial {result.trial_id} of sweep {result.sweep_id}",
            f"of trial {trial.folder.name} of sweep {sweep_id}",
            "Folders were mixed up: copy each batch's folder as a whole",
        )
    revisions = result.code.revisions if result.code is not None else {}
    for name, revision in revisions.items():  # the evaluator's tells evaluations apart, not trials
        if name != EVALUATOR and components.is_known(name):
            here, word = components.get_revision(name), components.revision_name(name)
            if here != revision:
                raise ConfigError(
                    path,
                    f"a trial of {name} at {word} {revision}, which is {here}",
                    "of the revisions that are here",
                    "Write the cells anew with `ablate cells` and run them: it is another trial",
                )
    config = files.check_identity(path, result)
    if result.trial_id not in cells:
        raise ConfigError(
            path,
            f"trial {result.trial_id}",
            f"one of the {len(cells)} trials that this ledger's sweep has come to",
            "Give the --out whose ledger wrote the cells, or write them from this one first "
            "(`ablate cells SPEC`)",
        )
    try:
        files.check_course(trial.epochs, last, config.training.epochs)
    except ValueError as error:
        raise ConfigError(
            path, str(error), "what such a trial tells", files.RESULT.remedy
        ) from None
    export = [inside(trial.folder, last["export"]).name] if trial.is_final else []
    if not set(export) <= set(result.files) <= {*files.TRIAL_FILES, *export}:
        raise ConfigError(
            path,
            f"the files {', '.join(result.files) or 'none'}",
            f"those of a trial, {', '.join([*export, *files.TRIAL_FILES])}",
            files.RESULT.remedy,
        )
    logs = [LOG] if os.path.lexists(trial.folder / LOG) else []
    for name in [*logs, *result.files]:
        try:
            open_regular(
                trial.folder / name, most_bytes=files.MOST_BYTES, follow_links=False
            ).close()
            found = "a file that is not as it was written"
            if name == LOG or files.digest(trial.folder / name) == result.files[name]:
                continue
        except OSError as error:
            found = f"no file of the trial ({error.strerror})"
        raise ConfigError(
            str(trial.folder / name),
            found,
            f"the one that {RESULT_NAME} names",
            "Copy the folder again, or remove this trial's and start the batch again",
        )


def _check_code(
    folder: Path, trials: Sequence[Trial], sources: Sources, *, same_code: bool
) -> dict[str, Differing]:
    """Return the trials that other code made.

    Raises:
        ConfigError: there are some, or some that hide their code, and nobody said that it is the
            same.
    """
    differing = {}
    for trial in trials:
        code = trial.result.code
        if code is not None and (others := sources.others(code.hashes)):
            status = "done" if trial.is_final else "failed"
            differing[trial.trial_id] = Differing(
                others, status, source_key(trial.hashes), (trial.evaluator,)
            )
    unsourced = sum(trial.result.code is None for trial in trials)
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


def _is_wanted(ledger: Ledger, trial: Trial) -> bool:
    """Return whether the files of a trial are to come, as a claim of it would say "mine"."""
    row = ledger.trial(trial.trial_id)
    if row is None:
        return True
    if row["status"] == "running" and row["owner"] is not None:
        return False  # owners that are gone have been released
    return row["status"] != "done" and (row["status"] != "failed" or trial.is_final)


def _record(trial: Trial, ledger: Ledger, sources: Sources, done: Imported) -> None:
    result, last, owner = trial.result, trial.last, Owner.me()
    is_known = ledger.trial(result.trial_id) is not None
    claim = ledger.claim(
        result.trial_id,
        result.config_hash,
        result.seed,
        result.config,
        owner,
        retry_failed=trial.is_final,  # a result is more than a failure
        source=None if result.code is None else sources.record(trial.hashes),
    )
    if claim == "busy":
        done.busy += 1
    elif claim == "done" and trial.is_final:
        _record_evaluations(trial, ledger, owner, done)
    elif claim != "mine":
        done.known += 1
    else:
        if is_known:  # the beginning of another course of the same trial
            ledger.drop_epochs(result.trial_id)
        if trial.is_final:
            ledger.record_final(result.trial_id, last, trial.epochs, evaluator=trial.evaluator)
            done.done += 1
        else:
            ledger.record_epochs(result.trial_id, trial.epochs)
            ledger.release(result.trial_id, "failed", last["reason"])
            done.failed += 1


def _record_evaluations(trial: Trial, ledger: Ledger, owner: Owner, done: Imported) -> None:
    """Record what a result says of a trial that is a fact: splits and metrics that it lacks.

    Only by the same weights: trained on another processor they may be others, and one trial's
    validation would stand beside another's test.
    """
    trial_id, last = trial.trial_id, trial.last
    known, row = ledger.evaluations(trial_id, last["evaluator"]), ledger.trial(trial_id) or {}
    found = last["evaluations"]
    if all(metrics.keys() <= known.get(split, {}).keys() for split, metrics in found.items()):
        done.known += 1
        return
    is_equal = row["best_epoch"] == last["best_epoch"] and all(
        known[split][metric] == value
        for split, metrics in found.items()
        for metric, value in metrics.items()
        if metric in known.get(split, {})
    )
    if not is_equal:
        done.otherwise += 1
    elif ledger.claim_evaluation(trial_id, owner) != "mine":
        done.busy += 1
    else:
        ledger.record_final(trial_id, last, trained=False, evaluator=trial.evaluator)
        done.further += 1


def _copy_trial(trial: Trial, to: Path) -> None:
    """Copy the files of a trial to where a run would have left them; `final.json` comes last,
    without which the folder is none of a finished trial.

    Raises:
        ConfigError: they cannot be written, or changed since they were checked.
    """
    digests = trial.result.files
    names = sorted(digests, key=lambda name: name == RESULT)
    try:
        to.mkdir(parents=True, exist_ok=True)
        with FileLock(to / LOCK, timeout=LOCK_SECONDS):
            for name in [LOG, *names]:
                if os.path.lexists(trial.folder / name):
                    _copy_file(trial.folder / name, to / name, digests.get(name))
            shutil.rmtree(to / CHECKPOINTS, ignore_errors=True)
            handle = os.open(to, os.O_RDONLY)
            os.fsync(handle)  # before the ledger says that they are there
            os.close(handle)
    except Timeout:
        raise ConfigError(
            str(to),
            "the trial's folder locked by another process",
            "it free",
            "End that process, and import again",
        ) from None
    except OSError as error:
        if is_full(error):
            raise
        raise ConfigError(
            str(error.filename or to),
            f"{error.strerror or error}",
            "a place where the trial's files can be written",
            "Move away what lies there, and import again",
        ) from error


def _copy_file(source: Path, target: Path, sha256: str | None) -> None:
    """Copy a regular file whole or not at all, if its bytes are those that were checked."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with (
            open_regular(source, most_bytes=files.MOST_BYTES, follow_links=False) as file,
            temporary.open("wb") as copy,
        ):
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
        if sha256 not in (None, files.digest(temporary)):
            raise ConfigError(
                str(source),
                "a file that changed while it was imported",
                "one that stays as it was written",
                "Import again when nothing writes to the batch's folder",
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
