"""Run one job, which yields JSON-able events: train or resume a trial, or evaluate it further."""

import contextlib
import hashlib
import json
import logging
import shutil
import socket
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from trainables.core import components
from trainables.core.components import Code, list_differing_components
from trainables.core.export import load_weights
from trainables.core.identity import compute_config_hash
from trainables.core.runtime import CHECKPOINTS, CONFIG, RESULT, SOURCE
from trainables.core.trainer import Trainer
from trainables.data.dataset import fingerprint
from trainables.evaluation.metrics import EVALUATOR
from trainables.evaluation.tasks import get_task
from trainables.jobs.distributed import train_together
from trainables.jobs.ensemble import Member, evaluate_ensemble
from trainables.jobs.request import Job
from trainables.machine.devices import PeakMemory
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError, TrialFailure
from trainables.words.files import join_inside, write_json

LOG = logging.getLogger(__name__)
Event = dict[str, Any]
DIGEST = "sha256"  # key of the digest of all other keys of a result


def run_job(job: Job) -> Iterator[Event]:
    """Run or resume a job; yield an "epoch" event after each epoch and one "final" event.

    A resumed trial yields only the epochs after its checkpoint, a finished one only "final". A job
    with `until` below the last epoch saves its state there and ends with a "paused" event. "final"
    and "paused" hold the events of all epochs as `history`.

    Raises:
        ConfigError, TrialFailure: the job cannot succeed, so do not retry it.
        OSError: the machine is at fault, so the job may be retried.
    """
    # find the trial's stored result
    config, folder = TrialConfig.model_validate(job.config), job.runtime.trial_dir
    LOG.info("Trial %s has the configuration %s.", job.trial_id, config.model_dump_json())
    data_fingerprint = fingerprint(config.data, job.runtime.cache_dir)
    identity = {"config_hash": compute_config_hash(config, data_fingerprint), "seed": job.seed}
    final = _load_result(job, identity)

    # train the trial, or evaluate its model further
    if final is not None:
        final = _evaluate_further(job, config, final)
    elif job.mode != "train":
        raise TrialFailure(
            f"{folder} has no model to evaluate: the trial has not finished here, or `ablate "
            "prune` deleted its weights. Give --force to train the trial again"
        )
    else:
        if folder is not None and not (folder / CONFIG).exists():
            record = {"config": config.model_dump(mode="json"), "seed": job.seed}
            write_json(folder / CONFIG, record)
        final = yield from _train_trial(job, config)
        if final is None:
            return

    # store the result and report it
    if folder is not None:
        write_json(folder / RESULT, _seal_result({**final, **identity}))
    evaluations = json.dumps(final["evaluations"])
    LOG.info("The selected epoch is %s, with metrics %s.", final["best_epoch"], evaluations)
    yield final


def _evaluate_further(job: Job, config: TrialConfig, final: Event) -> Event:
    """Return the event `final` of a finished trial, with the job's missing metrics added."""
    # metrics by another version of the evaluator are dropped
    is_current = final["evaluator"] == EVALUATOR
    earlier = final["evaluations"] if is_current else {}
    classes = {**final.get("classes", {})} if is_current else {}  # the first versions wrote none
    if job.mode == "ensemble":
        members = [
            Member(TrialConfig.model_validate(fold.config), fold.seed, fold.export)
            for fold in job.members
        ]
        metrics = evaluate_ensemble(members, job.runtime, job.metrics)
        fresh = {"ensemble": earlier.get("ensemble", {}) | metrics}
    else:
        fresh, fresh_classes = _compute_missing_metrics(job, config, final["export"], earlier)
        classes |= fresh_classes
    if not fresh:
        return final
    return final | {"evaluations": earlier | fresh, "evaluator": EVALUATOR, "classes": classes}


def _compute_missing_metrics(
    job: Job, config: TrialConfig, export: str, earlier: Mapping[str, Event]
) -> tuple[dict[str, Event], dict[str, Event]]:
    """Compute metrics that `earlier` lacks.

    Returns:
        All metrics of each split that lacked one, and `Evaluator.classes`.
    """
    folder = job.runtime.trial_dir
    requested = dict.fromkeys((*get_task(config).metrics, *job.metrics))
    missing = {
        split: tuple(name for name in requested if name not in earlier.get(split, ()))
        for split in job.evaluate
    }
    if folder is None or not any(missing.values()):
        return {}, {}
    trainer = Trainer(config, job.seed, job.runtime, resume=False)
    load_weights(trainer.network, join_inside(folder, export))
    evaluations = {
        split: earlier.get(split, {}) | trainer.evaluator.evaluate(split, names)
        for split, names in missing.items()
        if names
    }
    return evaluations, trainer.evaluator.classes


def _train_trial(job: Job, config: TrialConfig) -> Generator[Event, None, Event | None]:
    """Train a trial, yield its events and return the final one, or None if the trial pauses."""
    with train_together(job) as (group, runtime), _explain_exhausted_memory(config):
        trainer = Trainer(config, job.seed, runtime, group=group)
        trainer.splits.require_splits(job.evaluate)
        memory = PeakMemory(trainer.device)
        epochs = config.training.epochs
        for report in trainer.train_epochs(job.until):
            summary = " · ".join(
                f"{name} {value:.4g}"
                for name, value in report.metrics.items()
                if name == "train/loss" or name.startswith(("val/", "test/", "best/"))
            )
            LOG.info("epoch %d/%d · step %d · %s", report.epoch, epochs, report.steps, summary)
            yield {"event": "epoch", **asdict(report)}
        history = [{"event": "epoch", **asdict(report)} for report in trainer.history]
        if trainer.epoch < epochs:
            LOG.info("The trial pauses after epoch %d.", trainer.epoch)
            yield {"event": "paused", "epoch": trainer.epoch, "history": history}
            return None
        final = trainer.finish(job.evaluate, job.metrics)
        final.provenance["peak_bytes"] = memory.read()
        return {"event": "final", **asdict(final), "history": history}


@contextmanager
def _explain_exhausted_memory(config: TrialConfig) -> Iterator[None]:
    """Run a block, and add to its out-of-memory error which settings need less memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        images = config.training.micro_batch or config.training.batch_size
        raise torch.OutOfMemoryError(
            f"{' '.join(str(error).split())[:120].rstrip('. ')}, with {images} images at once. Set "
            f"training.micro_batch to {max(1, images // 2)}, which keeps the trial's numbers and "
            "id, or lower training.batch_size. Then run again with --retry-failed"
        ) from error


def _load_result(job: Job, identity: Event) -> Event | None:
    """Return the stored final event of a finished trial, or None if the trial must be trained.

    The event counts only if its export exists and the driver's code made it. An event of another
    `identity` (configuration hash and seed) is refused.
    """
    folder, is_evaluation_valid = job.runtime.trial_dir, True
    if job.source is not None:
        require_driver_code(job.source)
        if folder is not None:
            is_evaluation_valid = prepare_folder(folder, job.source, trains=job.mode == "train")
    if folder is None or not (path := folder / RESULT).exists():
        return None
    try:
        final: Event = json.loads(path.read_text())
        digest = final.pop(DIGEST, None)  # the first versions wrote none
        if digest is not None and digest != _seal_result(final)[DIGEST]:
            raise ValueError("The SHA-256 of the result differs from the recorded SHA-256")
    except ValueError:
        LOG.warning("%s is damaged. The trial resumes from its checkpoints.", path)
        return None
    recorded = {name: final.pop(name, None) for name in identity}
    if recorded != identity:
        raise ConfigError(
            str(path),
            f"This result belongs to {recorded}, not to {identity}",
            "Give another output folder, or remove this file",
        )
    if not join_inside(folder, final["export"]).exists():
        return None
    # evaluations by another evaluator are computed again
    return final if is_evaluation_valid else {**final, "evaluations": {}}


def _seal_result(final: Event) -> Event:
    text = json.dumps(final, sort_keys=True)
    return {**final, DIGEST: hashlib.sha256(text.encode()).hexdigest()}


def require_driver_code(code: Code) -> None:
    """Raise OSError (a fault of the machine) unless the code here is the driver's, `code`."""
    if differing := list_differing_components(code):
        raise OSError(
            f"{socket.gethostname()}: the source of {', '.join(differing)} differs from the "
            "driver's. Put the same code on every machine. If the code was edited during the "
            "sweep, start the sweep again"
        )


def prepare_folder(folder: Path, code: Code, *, trains: bool) -> bool:
    """Record in a trial's folder that the driver's code (`code`) makes its files from now on.

    If the job `trains`, a result and checkpoints that different code made are deleted first.

    Returns:
        False if different code of the evaluator made the evaluations in the folder.
    """
    # find components whose recorded code is not listed as equal to the driver's
    hashes, recorded = dict(code.hashes), dict[str, str | None]()
    with contextlib.suppress(FileNotFoundError, ValueError):
        recorded = json.loads((folder / SOURCE).read_text())
    shared = recorded.keys() & code.same.keys()
    foreign = {name for name in shared if recorded[name] not in code.same[name]}

    # delete result and checkpoints of different code, and record the driver's code
    if trains and foreign - {components.EVALUATOR}:  # the code that trains is different
        names = ", ".join(sorted(foreign))
        text = "%s was begun with other code of %s. The trial starts again from its first epoch."
        LOG.warning(text, folder, names)
        (folder / RESULT).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / CHECKPOINTS)
    # an evaluation of a trained model replaces only the evaluator's hash
    current = hashes if trains else recorded | {components.EVALUATOR: hashes[components.EVALUATOR]}
    if current != recorded:
        write_json(folder / SOURCE, current)
    return components.EVALUATOR not in foreign
