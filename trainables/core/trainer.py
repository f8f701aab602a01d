"""Train one trial exactly reproducibly; the training loop reads from top to bottom.

    trainer = Trainer(config, seed, runtime)     builds all parts, restores the newest checkpoint
    for report in trainer.train_epochs(): ...
    final = trainer.finish(evaluate=("val", "test"))

Numbers depend only on (config, data, seed): every random draw has a named stream for each step, the
learning rate is a function of the step, and a checkpoint holds all other state. On one machine's
CPU, with a fixed number of threads, two runs end in the same bytes, interrupted or not.
"""

import dataclasses
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from trainables.backbones.extra_token import ExtraTokenViT
from trainables.backbones.memory import hold_running_statistics
from trainables.core.assembly import assemble_parts, check_processes, seed_step
from trainables.core.checkpoints import Checkpoints, clone_to_own_storage
from trainables.core.evaluator import Evaluator, list_epoch_splits
from trainables.core.export import check_base, compute_base_digest, write_export
from trainables.core.identity import compute_config_hash
from trainables.core.loss_terms import (
    CALIBRATION_BATCHES,
    EpochMetrics,
    Norms,
    compute_factors,
    compute_ratios,
    is_measured_step,
    measure_batch,
    record_head_outputs,
    warn_of_term_scales,
)
from trainables.core.optimizer import RateSchedule, set_rates
from trainables.core.runtime import CHECKPOINTS, EXPORT, EpochReport, FinalReport, Runtime
from trainables.data.sampler import draw_epoch_batches
from trainables.data.splits import load_splits
from trainables.evaluation.metrics import EVALUATOR
from trainables.machine.devices import resolve_device
from trainables.machine.group import ALONE, Group
from trainables.machine.processes import feed_watchdog, keep_freed_memory
from trainables.methods.base import Batch, Progress
from trainables.methods.head import load_principal_start
from trainables.trial import TrialConfig

LOG = logging.getLogger(__name__)
CHECK_EVERY = 256  # steps between checks that the loss is finite; each check waits for the device


class Trainer:
    """Train, checkpoint, evaluate and export one trial.

    With `resume` it continues from the newest intact checkpoint in `runtime.trial_dir`, if there is
    one. Of the processes of a `group` only the main one writes files.
    """

    def __init__(
        self,
        config: TrialConfig,
        seed: int,
        runtime: Runtime,
        *,
        resume: bool = True,
        group: Group = ALONE,
    ) -> None:
        self.config, self.seed, self.runtime, self.group = config, seed, runtime, group

        # choose the device
        self.device = resolve_device(runtime.device)
        if runtime.threads is not None:
            torch.set_num_threads(runtime.threads)
        if self.device.type == "cpu":
            keep_freed_memory()
        check_processes(config, group.size, on_gpus=self.device.type == "cuda")

        # load the data splits; the main process fills the cache first
        with group.main_process_first():
            self.splits = load_splits(config.data, runtime.cache_dir)
        self.splits.require_splits(list_epoch_splits(config, self.splits))
        self.hash = compute_config_hash(config, self.splits.fingerprint)

        # build network, optimizer, evaluator and schedule
        cache = runtime.cache_dir
        parts = assemble_parts(config, seed, self.splits, cache, self.device, group=group)
        self.inputs, self.network, self.passes = parts.inputs, parts.network, parts.passes
        self.parameters, self.generators = parts.parameters, parts.generators
        self.optimizer = parts.optimizer
        self.evaluator = Evaluator(
            config, self.splits, self.network, self.inputs, device=self.device, group=group
        )
        self.labels = self.splits.train.labels.to(self.device)
        epoch_steps = len(self.plan_batches(0))
        self.schedule = RateSchedule(config.schedule, config.training.epochs, epoch_steps)
        self.total_steps = config.training.epochs * epoch_steps

        # begin at the first step; steps of the warm-up before the epochs have negative numbers
        self.epoch = 0  # finished epochs
        self.warmup_steps = config.schedule.warmup_steps or 0
        self.steps = -self.warmup_steps  # the next optimiser step
        self.steps_here = 0  # optimiser steps of this process
        self.seconds = 0.0
        self.history: list[EpochReport] = []
        self.best: dict[str, Any] | None = None
        self.trace: EpochMetrics | None = None  # loss terms of an epoch that is under way
        self.resumed_from: int | None = None  # epochs finished at the restored checkpoint
        self.clock = self._saved = time.monotonic()  # last update of `seconds`, last checkpoint

        # restore the newest checkpoint
        self.folder = runtime.trial_dir
        self.checkpoints: Checkpoints | None = None
        if self.folder is not None:
            self.checkpoints = Checkpoints(self.folder / CHECKPOINTS, self.hash, seed)
        if resume:
            checkpoints = self.checkpoints
            checkpoint = group.broadcast_object(
                lambda: None if checkpoints is None else checkpoints.load_latest()
            )
            if checkpoint is not None:
                self._restore_checkpoint(*checkpoint)

    def train_epochs(self, until: int | None = None) -> Iterator[EpochReport]:
        """Train the remaining epochs, or pause after epoch `until`, and yield a report for each.

        A checkpoint is saved only after the caller has received the report, so that no report is
        lost: after an interruption in between, the epoch is trained and reported again.
        """
        epochs = self.config.training.epochs
        last = min(epochs, until or epochs)
        self.clock = time.monotonic()
        if self.steps == -self.warmup_steps:
            if self.config.embedding.init == "pca":
                self._initialize_from_features()
            self.measure_initial_scales()
        if self.steps < 0:
            self._train_warmup_steps()
        while self.epoch < last:
            yield self._train_epoch()
            self.clock = time.monotonic()  # the caller's time with the report is not training time
            is_pause = self.epoch == last < epochs
            if is_pause or self._is_checkpoint_due(epoch_end=True):
                self.save_checkpoint()

    @torch.no_grad()
    def _initialize_from_features(self) -> None:
        """Initialise the method's head by the principal directions of the training features.

        The directions are cached, unless the features depend on the seed, as they do if the
        backbone starts from random weights or has a second class token.
        """
        network = self.network.eval()
        blocks = self.inputs.iterate_blocks(self.splits.train)
        features = torch.cat([network.features(block) for block in blocks])
        is_random = network.backbone is not None and self.config.backbone.weights == "none"
        has_second_token = isinstance(network.backbone, ExtraTokenViT)
        if not (is_random or has_second_token):
            # a function that `fit` calls instead of computing the directions
            network.method.principal = load_principal_start(self.runtime.cache_dir)
        network.method.fit(features)
        self.group.broadcast_(self.parameters)  # all processes begin with the main one's weights

    def measure_initial_scales(self) -> None:
        """Measure initial scales and factors of relative weights on the first batches.

        No step is taken. Rounding may differ between processes, so all take the main one's values.
        """
        method = self.network.method
        if method.factors is None and not method.traits.scaled_start:
            return
        self.network.enter_phase("main", self.parameters)
        first_batches = self.plan_batches(0)[:CALIBRATION_BATCHES]
        with self._hold_statistics():
            batches = [self._load_features(*numbered) for numbered in enumerate(first_batches)]
            if method.traits.scaled_start:
                method.scale_start(torch.cat([features for features, _ in batches]))
                self.group.broadcast_(self.parameters)
            if method.factors is None:
                return
            norms = [self._measure_batch(step, *loaded) for step, loaded in enumerate(batches)]
        method.factors.copy_(torch.tensor(compute_factors(method, norms)))
        self.group.broadcast_([method.factors])

    def _hold_statistics(self) -> AbstractContextManager[None]:
        """Return a context in which BatchNorms of the backbone keep their running statistics."""
        backbone = self.network.backbone
        return nullcontext() if backbone is None else hold_running_statistics(backbone)

    def _load_features(self, step: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the batch of a step, without a graph, and its labels."""
        seed_step(self.generators, self.seed, step, self.network.backbone)
        batch = self._load_batch(positions)
        with torch.no_grad():
            return self.passes.compute_features(batch.inputs), batch.labels

    def _measure_batch(self, step: int, features: Tensor, labels: Tensor) -> dict[str, Norms]:
        """Return the gradient norms of the terms, without their weights, on the batch of a step.

        A term that acts only later in training, in another phase of the method, is measured as in
        the last step.
        """
        method, norms = self.network.method, dict[str, Norms]()
        for number in (0, self.total_steps - 1):
            known_weights = {method.WEIGHTS[name] for name in norms}
            missing = [t for t in method.scaled_terms if method.WEIGHTS[t] not in known_weights]
            if missing:
                seed_step(self.generators, self.seed, step, self.network.backbone)
                progress = Progress("main", 0, step, number / self.total_steps)
                found = measure_batch(method, features, labels, progress, self.generators)
                norms |= {name: found[name] for name in missing if name in found}
        return norms

    def _train_warmup_steps(self) -> None:
        """Train the steps before the first epoch, on the batches of epochs −1, −2, …"""
        epochs = range(1, 1 + -(-self.warmup_steps // self.schedule.steps_per_epoch))
        batches = torch.cat([self.plan_batches(-epoch) for epoch in epochs])[: self.warmup_steps]
        is_backbone_held = "backbone" in self.config.schedule.held_roles
        with self._hold_statistics() if is_backbone_held else nullcontext():
            self._train_batches(batches, "warmup", 0)
        LOG.info("The warm-up has taken %d steps before the first epoch.", self.warmup_steps)
        if self._is_checkpoint_due(epoch_end=True):
            self.save_checkpoint()

    def _train_batches(self, batches: Tensor, phase: str, epoch: int) -> EpochMetrics:
        """Train batches from the first, or from a checkpoint among them; return their loss terms.

        `epoch` is counted from 1; 0 stands for the warm-up before the epochs.
        """
        self.network.enter_phase(phase, self.parameters)
        # loss terms so far, one entry for each step
        trace = self.trace = self.trace or EpochMetrics(epoch, self.steps)
        self.inputs.prefetch(batches[trace.length :])
        while trace.length < len(batches):
            self.step(batches[trace.length], phase)
            if trace.length % CHECK_EVERY == 0:
                trace.check()
                if self._is_checkpoint_due(epoch_end=False):
                    self.save_checkpoint()
        trace.check()
        self.trace = None  # the next checkpoint is at the end of an epoch
        return trace

    def _train_epoch(self) -> EpochReport:
        """Train the current epoch, from its start or from a checkpoint within it, and report it."""
        seconds_before = self.seconds
        phase = "warmup" if self.epoch < self.config.schedule.warmup_epochs else "main"
        trace = self._train_batches(self.plan_batches(self.epoch), phase, self.epoch + 1)

        # average the loss terms and warn of terms without effect or with far too much
        metrics = trace.compute_means()
        last_metrics = self.history[-1].metrics if self.history else {}
        warn_of_term_scales(metrics, last_metrics, self.epoch + 1)
        for group in self.optimizer.param_groups:
            metrics[f"lr/{group['role']}"] = float(group["lr"])
        self.epoch += 1

        # evaluate the network and keep the best weights
        if self.evaluator.is_due(self.epoch):
            scores = self.evaluator.evaluate_epoch()
            self._keep_best_weights(scores[self.splits.selection][self.config.selection.metric])
            for split, values in scores.items():
                metrics |= {f"{split}/{name}": value for name, value in values.items()}
        if self.best is not None:
            metrics[self.evaluator.best_metric_name] = self.best["value"]

        # report the epoch
        self._update_training_time()
        metrics["time/epoch_s"] = self.seconds - seconds_before
        self.history.append(EpochReport(self.epoch, self.steps, self.seconds, metrics))
        return self.history[-1]

    def step(self, positions: Tensor, phase: str) -> None:
        """Take one optimiser step on the images at `positions` and record its terms in `trace`."""
        assert self.trace is not None

        # set this step's random streams and learning rates
        seed_step(self.generators, self.seed, self.steps, self.network.backbone)
        set_rates(self.optimizer, self.schedule.compute_factor(self.steps))
        fraction = max(0, self.steps) / self.total_steps
        progress = Progress(phase, self.epoch, self.steps, fraction)
        method, generators, training = self.network.method, self.generators, self.config.training

        # forward pass
        batch = self._load_batch(positions)
        features = self.passes.compute_features(batch.inputs)
        is_measured = training.measure_terms is not False and is_measured_step(self.steps)
        with record_head_outputs(method, active=is_measured) as outputs:
            state = method(features, batch.labels, progress, generators["method"])
        terms = method.scale_terms(method.terms(state, batch.labels, progress, generators["loss"]))

        # gradients of the terms beside the metric term's, before `backward` frees the graph
        ratios: dict[str, Tensor] = {}
        if is_measured:
            ratios = compute_ratios(terms, [outputs, [features], [*method.loss.parameters()]])

        # backward pass
        for parameter in self.parameters:
            parameter.grad = None  # faster than `zero_grad`, which enters torch's compiler
        loss = self.trace.add(terms)  # records the terms, and returns Σ weight · value
        if loss.requires_grad:  # not in the warm-up of a method that is off
            self.passes.backward(loss)
        self.trace.add_observed(ratios | method.observed())

        # clip gradients and update the weights
        # in the warm-up of a method that is off there is no gradient, which torch refuses
        has_gradients = any(parameter.grad is not None for parameter in self.parameters)
        if training.clip_value is not None and has_gradients:
            nn.utils.clip_grad_value_(self.parameters, training.clip_value)
        if training.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, training.clip_norm)
        self.optimizer.step()
        self.steps += 1
        self.steps_here += 1
        feed_watchdog()

    def _load_batch(self, positions: Tensor) -> Batch:
        """Return the images at `positions` with their labels, augmented and mixed."""
        inputs = self.inputs.load_training_inputs(positions, self.generators["augment"])
        labels = self.labels.index_select(0, positions.to(self.device))
        batch = Batch(inputs, labels[:, None])
        return self.network.method.prepare(batch, self.generators["prepare"])

    def plan_batches(self, epoch: int) -> Tensor:
        """Return the positions of the training images in each batch of an epoch, [steps, B]."""
        training, needs = self.config.training, self.network.method.loss.batch
        labels, size = self.splits.train.labels, training.batch_size
        return draw_epoch_batches(labels, size, training.per_class, self.seed, epoch, needs.layout)

    def _keep_best_weights(self, value: float) -> None:
        """Copy the weights if `value` is the best metric yet, or if `selection.keep` is "last"."""
        is_last = self.config.selection.keep == "last"
        if self.best is None or is_last or value > self.best["value"]:
            state = self.network.collect_trained_state()
            weights = {name: weight.detach().clone() for name, weight in state.items()}
            self.best = {"epoch": self.epoch, "value": value, "weights": weights}

    def finish(
        self, evaluate: tuple[str, ...] = ("val",), metrics: tuple[str, ...] = ()
    ) -> FinalReport:
        """Restore the selected epoch's weights, evaluate them on splits and export the model.

        `metrics` are computed besides those of the task.
        """
        assert self.best is not None, "Run train_epochs() before finish()."
        self.network.load_trained_state(self.best["weights"])
        names = tuple(dict.fromkeys((*self.evaluator.task.metrics, *metrics)))
        evaluations = {split: self.evaluator.evaluate(split, names) for split in evaluate}
        if self.folder is not None:
            write_export(self.folder / EXPORT, self.network, self.config, self.splits.train)
        return FinalReport(
            best_epoch=self.best["epoch"],
            epochs=self.epoch,
            steps=self.steps,
            seconds=self.seconds,
            evaluations=evaluations,
            evaluator=EVALUATOR,
            export=None if self.folder is None else EXPORT,
            provenance=self.describe_provenance(),
            classes=self.evaluator.classes,
            history=self.history,
        )

    def describe_provenance(self) -> dict[str, Any]:
        """Return device, versions and settings of this run, which the trial's id leaves out."""
        device, is_gpu = self.device, self.device.type == "cuda"
        return {
            "device": f"cuda ({torch.cuda.get_device_name(device)})" if is_gpu else "cpu",
            "threads": torch.get_num_threads(),
            "kernels": torch.backends.cpu.get_cpu_capability(),
            "torch": torch.__version__,
            "config_hash": self.hash,
            "data_fingerprint": self.splits.fingerprint,
            **{f"{name}_classes": len(self.splits[name].classes) for name in self.splits.names},
            "resumed_from_epoch": self.resumed_from,
            "steps_this_process": self.steps_here,
            **self.passes.describe_rounding(),  # micro-batch, checkpointing and processes
        }

    @cached_property
    def base_sha256(self) -> str | None:
        """The digest of the weights that checkpoints lack, or None if checkpoints are complete."""
        return compute_base_digest(self.network)

    def _update_training_time(self) -> None:
        now = time.monotonic()
        self.seconds += now - self.clock
        self.clock = now

    def _is_checkpoint_due(self, *, epoch_end: bool) -> bool:
        """Return whether a checkpoint is due; an interval of 0 saves only at the end of epochs."""
        interval = self.runtime.checkpoint_seconds
        return time.monotonic() - self._saved >= interval and (epoch_end or interval > 0)

    def save_checkpoint(self) -> None:
        """Save a checkpoint of the trial's whole state, if it has a folder."""
        if self.checkpoints is None:
            return
        self._update_training_time()
        state = {
            "epoch": self.epoch,
            "steps": self.steps,
            "seconds": self.seconds,
            "trace": None if self.trace is None else self.trace.get_state(),
            "history": [dataclasses.asdict(report) for report in self.history],
            "network": clone_to_own_storage(self.network.collect_trained_state()),
            "base_sha256": self.base_sha256,  # of the weights that `network` lacks
            "optimizer": clone_to_own_storage(self.optimizer.state_dict()),
        }
        self.checkpoints.save_state(self.warmup_steps + self.steps, state, self.best)
        self._saved = time.monotonic()

    def _restore_checkpoint(self, state: dict[str, Any], best: dict[str, Any] | None) -> None:
        """Load the trial's state from a checkpoint; `best` has the best weights so far."""
        check_base(self.network, state.get("base_sha256"), "the checkpoint of this trial")
        self.network.load_trained_state(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.steps, self.seconds = state["epoch"], state["steps"], state["seconds"]
        self.history = [EpochReport(**report) for report in state["history"]]
        if state["trace"] is not None:
            self.trace = EpochMetrics.from_state(state["trace"], self.device)
        self.best, self.resumed_from = best, self.epoch
        LOG.info("The trial resumes after epoch %d, step %d.", self.epoch, self.steps)
