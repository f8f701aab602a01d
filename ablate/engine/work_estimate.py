"""Describe what a plan would run, as text: cells, known results, warnings, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from ablate.designs.base import ENSEMBLE
from ablate.engine.driver_status import format_duration
from ablate.engine.estimates import (
    Estimate,
    Rate,
    build_cost_key,
    describe_memory,
    load_measured_rates,
    measure_pilot_rates,
)
from ablate.engine.preflight import (
    build_example_config,
    check_classes,
    describe_trainings,
    find_missing_weights,
    open_ledger_or_empty,
)
from ablate.engine.ray.resources import count_fitting_here
from ablate.engine.settings import Settings
from ablate.ledger.facts import Facts
from ablate.ledger.sources import build_refusal, summarize_differences
from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from reports.stats.describe import pooled_sd
from trainables.errors import ConfigError


@dataclass(frozen=True)
class Preview:
    """The text of a plan.

    Attributes:
        refused: why a run would be refused, or None.
        runnable: False if the pilot of every kind of trial failed.
    """

    text: str
    refused: ConfigError | None
    runnable: bool


def account_for_plan(plan: Plan, settings: Settings, *, pilot: bool = False) -> Preview:
    """Describe what a plan would run. No trial runs, and no ledger is created.

    Args:
        pilot: whether to time a few steps of each kind of trial without a known rate.

    Raises:
        ConfigError: a pending trial has too few classes for its splits or batches.
    """
    cache, device = settings.cache, settings.request.device
    with open_ledger_or_empty(settings.ledger) as ledger:
        facts = settings.open_facts(ledger)
        progression = Progression(plan, facts, record=False)
        while progression.list_new_cells():
            pass
        notes = [f"warning: {text}" for text in advice.list_plan_warnings(plan)]
        trainings: dict[str, str] = {}
        if settings.reads_data:
            warnings = check_classes(plan, progression, cache)
            trainings, batch_warnings = describe_trainings(plan, progression, cache)
            notes += [f"warning: {text}" for text in warnings + batch_warnings]
            absent = find_missing_weights(plan, progression, cache, device)
            notes += [f"weights: {weights}" for weights in absent]
        rates = load_measured_rates(ledger)
        kinds = _find_kinds(plan, progression) if pilot else {}
        unknown = {key: config for key, config in kinds.items() if key not in rates}
        piloted, failures = measure_pilot_rates(unknown, settings)
        notes += [f"warning: no trial like this can run: {why}" for why in failures.values()]
        workload = Workload(plan, progression, rates | piloted, settings.request.gpus)
        lines = [f"sweep {plan.spec.name} ({plan.sweep_id}), objective {plan.spec.objective}"]
        for name in plan.order:
            lines.append(workload.add_study(name))
            details = [trainings[name]] if name in trainings else []
            details += advice.list_study_notes(plan, name)
            scatter = estimate_seed_scatter(progression, name)
            details += advice.describe_precision(plan, name, scatter)
            lines += [f"    {text}" for text in details]
        lines += notes
        parallel, again = count_fitting_here(settings.request), len(workload.again)
        lines.append(
            f"{len(workload.todo)} trials to run now and {workload.later} later"
            + (f", {again} finished ones to be evaluated again" if again else "")
            + f"; {parallel} at once, {settings.request.threads} thread(s) each"
        )
        lines += describe_memory(piloted.values(), parallel, psutil.virtual_memory().total)
        lines += workload.describe_time(parallel, piloted=pilot)
        lines += describe_sources(facts, same_code=settings.same_code)
    return Preview(
        "\n".join(lines),
        refused=None if settings.same_code else build_refusal(facts.differing),
        runnable=not failures or not failures.keys() >= kinds.keys(),
    )


def estimate_seed_scatter(progression: Progression, name: str) -> float | None:
    """Return the standard deviation of a run over seeds, from a study's known trials."""
    split, _, metric = progression.plan.find_primary_metric(name).partition("/")
    groups: dict[str, list[float]] = {}
    for cell in progression.studies[name].cells:
        value = progression.facts[cell.trial_id].evaluations.get(split, {}).get(metric)
        if value is not None and cell.fold is None:
            groups.setdefault(cell.config_hash, []).append(value)
    pooled = pooled_sd(groups.values())
    return pooled[0] if pooled else None


def describe_sources(facts: Facts, *, same_code: bool) -> list[str]:
    """Return lines on known trials that other code has made."""
    prefix = "taken as the same code" if same_code else "source"
    return [f"{prefix}: {text}" for text in summarize_differences(facts.differing)]


class Workload:
    """Sum up the pending work of a plan's studies, in their order.

    Attributes:
        todo: trials to train.
        later: number of trials that follow from results.
        again: trained trials that lack an evaluation; the time estimate does not include them.
    """

    def __init__(
        self, plan: Plan, progression: Progression, rates: Mapping[str, Rate], gpus: float
    ) -> None:
        self.plan, self.progression, self.rates, self.gpus = plan, progression, rates, gpus
        self.estimate = Estimate()
        self.todo: set[str] = set()
        self.again: set[str] = set()
        self.later = 0
        self._first_study: dict[str, str] = {}  # trial → the study that named it first

    def add_study(self, name: str) -> str:
        """Add the pending trials of a study that no earlier study has; return a line on the
        study."""
        state, design = self.progression.studies[name], self.plan.spec.studies[name]
        seeds, folds = len(self.plan.list_seeds(name)), len(self.plan.list_folds(name))
        trials = {cell.trial_id for cell in state.cells}
        settled = [cell.trial_id for cell in state.cells if self.progression.is_settled(cell)]
        trained = {trial for trial in trials if self.progression.facts[trial].status == "done"}
        shared = {self._first_study[trial] for trial in trials if trial in self._first_study}
        hidden = 0 if state.blocked else state.size - len(state.cells)
        # estimate what is new
        ended = trained.union(settled, self._first_study)
        fresh = {cell.trial_id: cell for cell in state.cells if cell.trial_id not in ended}
        estimate = Estimate()
        for total in (estimate, self.estimate):
            for cell in fresh.values():
                if cell.error is None:
                    total.add(cell.config, self.rates)
            if hidden:
                total.add(build_example_config(self.plan, state), self.rates, hidden)
        self.todo |= trials.difference(settled, trained)
        self.again |= trained.difference(settled)
        self.later += hidden
        self._first_study = dict.fromkeys(trials, name) | self._first_study
        # describe the study
        text = f"  {name}: {design.design}, {state.size // seeds // folds} cells × {seeds} seeds"
        text += f" × {folds} {'folds' if design.splits is None else 'splits'}" if folds > 1 else ""
        text += " and their ensemble" if ENSEMBLE in design.evaluate else ""
        text += f", {len(settled)} known already"
        text += f", shares trials with {', '.join(sorted(shared))}" if shared else ""
        if state.blocked:
            text += f", blocked: {state.blocked}"
        elif hidden:
            text += f", {hidden} follow from results"
        if estimate.unknown:
            return f"{text}, time unknown"
        if estimate.trials:
            text += f", about {format_duration(estimate.seconds)}"
            text += f", {self._format_gpu_hours(estimate)}" if self.gpus else ""
        return text

    def describe_time(self, parallel: int, *, piloted: bool) -> list[str]:
        """Return lines on the time of all studies with `parallel` trials at once."""
        if self.estimate.unknown:
            few = "" if piloted else "; --pilot times a few steps of each kind"
            text = f"no trial like {self.estimate.unknown} of these is in the ledger{few}"
            return [f"time: unknown: {text}"]
        seconds = max(self.estimate.seconds / parallel, self.estimate.longest)
        bound = ", if no scheduler stopped any" if self.progression.legs else ""
        lines = [f"time: about {format_duration(seconds)}{bound}"]
        if self.gpus:
            lines.append(f"in all: {self._format_gpu_hours(self.estimate)}")
        return lines

    def _format_gpu_hours(self, estimate: Estimate) -> str:
        return f"about {self.gpus * estimate.seconds / 3600:.2g} GPU-hours"


def _find_kinds(plan: Plan, progression: Progression) -> dict[str, dict[str, Any]]:
    """Return one configuration of each kind of pending trial."""
    states = progression.studies.values()
    configs = [
        cell.config
        for state in states
        for cell in state.cells
        if cell.error is None and not progression.is_settled(cell)
    ]
    configs += [
        build_example_config(plan, state)
        for state in states
        if len(state.cells) < state.size and not state.blocked
    ]
    return {build_cost_key(config): config for config in reversed(configs)}
