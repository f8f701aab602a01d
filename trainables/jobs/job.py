"""A job done: what an engine's worker calls, and nothing else.

Its events are JSON-able dicts, so that they cross any process border; the folder of the trial
says how far it got, so the same job may be given again after anything that happened.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trainables.core.code_version import prepare_folder, require_driver_code
from trainables.core.export import read_weights
from trainables.core.identity import config_hash
from trainables.core.runtime import EpochReport, FinalReport
from trainables.core.trainer import Trainer
from trainables.core.trial_folder import TrialFolder
from trainables.data.dataset import fingerprint
from trainables.errors import ConfigError, TrialFailure
from trainables.evaluation.metrics import EVALUATOR
from trainables.evaluation.tasks import task_of
from trainables.jobs.ensemble import Member, evaluate_ensemble
from trainables.jobs.hidden import HidingFormatter
from trainables.jobs.memory import divided, released
from trainables.jobs.request import Fold, Job
from trainables.jobs.several import together
from trainables.machine.files import inside, write_json
from trainables.trial import TrialConfig

LOG = logging.getLogger(__name__)
Final = dict[str, Any] | None
DIGEST = "sha256"  # of all else in it


def run_job(job: Job) -> Iterator[dict[str, Any]]:
    """Run or continue a trial; yields an "epoch" event per epoch and one "final" event.

    A resumed trial yields only the epochs after its checkpoint, a finished one only "final".
    A job with `until`, an epoch before the last, ends there with a "paused" event and its state
    saved; the same job with a later `until`, or none, goes on from it.
    "final" and "paused" carry `history`, all epochs' events.

    Raises:
        ConfigError, TrialFailure: it cannot succeed; not to be retried. The trial's log has the
            whole traceback.
        OSError: the machine's fault; may be retried.
    """
    with trial_log(job.runtime.trial_dir):
        try:
            config = TrialConfig.model_validate(job.config)
            LOG.info("trial %s: %s", job.trial_id, config.model_dump_json())
            yield from _events(job, config)
        except Exception:
            LOG.exception("trial %s failed", job.trial_id)
            raise


def _events(job: Job, config: TrialConfig) -> Iterator[dict[str, Any]]:
    runtime, folder = job.runtime, job.runtime.trial_dir
    key = identity_of(job, config)
    final = known_result(job, folder, key)
    if final is None and job.mode != "train":
        raise TrialFailure(
            f"{folder}: nothing to evaluate, for the trial has not finished here, or its weights "
            "are gone (`ablate prune`); --force trains it again"
        )
    if final is None:
        if folder is not None:
            write_config(folder, config, job.seed)
        final = yield from _trained(job, config)
        if final is None:
            return
    elif job.mode == "ensemble":
        known = final["evaluations"] if final["evaluator"] == EVALUATOR else {}
        results = evaluate_ensemble([_member(fold) for fold in job.members], runtime, job.metrics)
        results = known.get("ensemble", {}) | results
        final |= {"evaluations": known | {"ensemble": results}, "evaluator": EVALUATOR}
    else:
        final = evaluated(job, config, final)
    yield keep_result(folder, final, key)


def evaluated(job: Job, config: TrialConfig, final: dict[str, Any]) -> dict[str, Any]:
    """The final event of a trial that ended before, with all evaluations that the job asks for."""
    folder = job.runtime.trial_dir
    known = final["evaluations"] if final["evaluator"] == EVALUATOR else {}
    asked = dict.fromkeys((*task_of(config).metrics, *job.metrics))
    missing = {
        split: tuple(m for m in asked if m not in known.get(split, ())) for split in job.evaluate
    }
    if any(missing.values()) and folder is not None:
        trainer = Trainer(config, job.seed, job.runtime, resume=False)
        trainer.network.load_state_dict(read_weights(inside(folder, final["export"])))
        fresh = {
            split: known.get(split, {}) | trainer.looks.evaluate(split, names)
            for split, names in missing.items()
            if names
        }
        final |= {"evaluations": known | fresh, "evaluator": EVALUATOR}
    return final


def identity_of(job: Job, config: TrialConfig) -> dict[str, Any]:
    """What a result in a trial's folder must say of itself."""
    of_data = fingerprint(config.data, job.runtime.cache_dir)
    return {"config_hash": config_hash(config, of_data), "seed": job.seed}


def keep_result(folder: Path | None, final: dict[str, Any], key: dict[str, Any]) -> dict[str, Any]:
    """The final event, once it is on disk."""
    if folder is not None:
        write_json(TrialFolder(folder).result, _with_digest({**final, **key}))
    LOG.info("selected epoch %s: %s", final["best_epoch"], json.dumps(final["evaluations"]))
    return final


def _trained(job: Job, config: TrialConfig) -> Generator[dict[str, Any], None, Final]:
    """Its events; then the final one, None of a trial that was paused. Where memory is exhausted it
    goes on from its checkpoint, in smaller parts."""
    times = 0
    while True:
        try:
            final = yield from _training(job, config)
            if final is not None and times:
                final["provenance"]["out_of_memory"] = times
            return final
        except torch.OutOfMemoryError as error:
            if job.runtime.processes > 1 or not job.runtime.divides:
                raise
            told = str(error)
        released()
        times += 1
        config = divided(config, job.seed, job.runtime, told)
        released()


def _training(job: Job, config: TrialConfig) -> Generator[dict[str, Any], None, Final]:
    with together(job) as (group, own):
        trainer = Trainer(config, job.seed, own, group=group)
        trainer.splits.require(job.evaluate)
        until = job.until or config.training.epochs
        if trainer.epoch < until:
            for report in trainer.epochs():
                LOG.info("%s", line(report, config.training.epochs))
                yield epoch_event(report)
                if report.epoch >= until:
                    break
        if trainer.epoch < config.training.epochs:
            yield paused(trainer)
            return None
        return final_event(trainer.finish(job.evaluate, job.metrics))


def _member(fold: Fold) -> Member:
    return Member(TrialConfig.model_validate(fold.config), fold.seed, fold.export)


def known_result(job: Job, folder: Path | None, key: dict[str, Any]) -> dict[str, Any] | None:
    """`_finished`, as far as the code that the job is for made it."""
    if job.source is not None:
        require_driver_code(job.source)
    if job.source is None or folder is None:
        return _finished(folder, key)
    read_by_us = prepare_folder(folder, job.source, trains=job.mode == "train")
    final = _finished(folder, key)
    return final if final is None or read_by_us else {**final, "evaluations": {}}


def _finished(folder: Path | None, key: dict[str, Any]) -> dict[str, Any] | None:
    """The final event of a trial that ended in this folder with its export still there."""
    if folder is None or not (path := TrialFolder(folder).result).exists():
        return None
    try:
        final: dict[str, Any] = json.loads(path.read_text())
        digest = final.pop(DIGEST, None)  # files of before have none
        if digest is not None and digest != _with_digest(final)[DIGEST]:
            raise ValueError("its digest is of other content")
    except ValueError:
        LOG.warning("%s is damaged; the trial goes on from its checkpoints", path)
        return None
    known = {name: final.pop(name, None) for name in key}
    if known != key:
        raise ConfigError(
            str(path),
            f"the result of {known}",
            f"that of {key}",
            "Take another output folder, or remove this one",
        )
    return final if inside(folder, final["export"]).exists() else None


def _with_digest(final: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(final, sort_keys=True)
    return {**final, DIGEST: hashlib.sha256(text.encode()).hexdigest()}


def write_config(folder: Path, config: TrialConfig, seed: int) -> None:
    path = TrialFolder(folder).config
    if not path.exists():  # the engine may have written it
        write_json(path, {"config": config.model_dump(mode="json"), "seed": seed})


def paused(trainer: Trainer) -> dict[str, Any]:
    """Its state saved, the event that says so."""
    trainer.pause()
    LOG.info("paused after epoch %d", trainer.epoch)
    history = [epoch_event(epoch) for epoch in trainer.history]
    return {"event": "paused", "epoch": trainer.epoch, "history": history}


def epoch_event(report: EpochReport) -> dict[str, Any]:
    return {"event": "epoch", **dataclasses.asdict(report)}


def final_event(report: FinalReport) -> dict[str, Any]:
    history = [epoch_event(epoch) for epoch in report.history]
    return {"event": "final", **dataclasses.asdict(report), "history": history}


def line(report: EpochReport, epochs: int) -> str:
    shown = [
        f"{name} {value:.4g}"
        for name, value in report.metrics.items()
        if name == "train/loss" or name.startswith(("val/", "test/", "best/"))
    ]
    return f"epoch {report.epoch}/{epochs} · step {report.steps} · {' · '.join(shown)}"


@contextmanager
def trial_log(folder: Path | None) -> Iterator[None]:
    """All of `trainables`' log lines also go to trial.log while the trial runs here."""
    logger = logging.getLogger("trainables")
    if folder is None or _logs_to(logger, TrialFolder(folder).log):
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(TrialFolder(folder).log, encoding="utf-8")
    handler.setFormatter(HidingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def _logs_to(logger: logging.Logger, path: Path) -> bool:
    """Whether whoever called, the engine for one, has this trial's log open already."""
    return any(
        isinstance(handler, logging.FileHandler) and Path(handler.baseFilename) == path.absolute()
        for handler in logger.handlers
    )
