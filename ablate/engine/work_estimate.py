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
    FETCHED,
    build_example_config,
    check_classes,
    describe_trainings,
    find_missing_weights,
    preview_progression,
)
from ablate.engine.ray.resources import count_fitting_here
from ablate.engine.settings import Settings
from ablate.ledger.facts import Facts
from ablate.ledger.sources import build_refusal, summarize_differences
from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.sweep.required_inputs import Use
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
    cache, request = settings.cache, settings.request
    with preview_progression(plan, settings) as progression:
        # check the inputs
        notes = [f"warning: {text}" for text in advice.list_plan_warnings(plan)]
        trainings: dict[str, str] = {}
        if settings.reads_data:
            check_classes(plan, progression, cache)
            trainings, warnings = describe_trainings(plan, progression, cache)
            notes += [f"warning: {text}" for text in warnings]
            missing = find_missing_weights(plan, progression, cache, request.device)
            notes += [describe_missing(weights, use) for weights, use in missing.items()]
        # measure seconds per epoch
        facts = progression.facts
        rates = load_measured_rates(facts.ledger)
        kinds = _find_pending_kinds(plan, progression) if pilot else {}
        unknown = {key: config for key, config in kinds.items() if key not in rates}
        piloted, failures = measure_pilot_rates(unknown, settings)
        notes += [f"warning: no trial like this can run: {reason}" for reason in failures.values()]
        # describe the studies
        workload = Workload(plan, progression, rates | piloted, request.gpus)
        lines = [f"sweep {plan.spec.name} ({plan.sweep_id}), objective {plan.spec.objective}"]
        for name in plan.order:
            lines.append(workload.add_study(name))
            details = [trainings[name]] if name in trainings else []
            details += advice.list_study_notes(plan, name)
            scatter = estimate_seed_scatter(progression, name)
            details += advice.describe_precision(plan, name, scatter)
            lines += [f"    {text}" for text in details]
        # sum up
        parallel = count_fitting_here(request)
        lines += [*notes, workload.describe_trials(parallel, request.threads)]
        lines += describe_memory(piloted.values(), parallel, psutil.virtual_memory().total)
        lines += workload.describe_time(parallel, piloted=pilot)
        lines += describe_sources(facts, same_code=settings.same_code)
    return Preview(
        "\n".join(lines),
        refused=None if settings.same_code else build_refusal(facts.differing),
        runnable=not failures or not failures.keys() >= kinds.keys(),
    )


def describe_missing(weights: str, use: Use) -> str:
    assert use.backbone is not None
    then = "A run ends before its first trial (`ablate backbones` names files that fit)."
    if use.backbone.weights in FETCHED:
        then = "A run fetches it first."
    return f"weights: {weights} is not here (backbone.weights of {use.study}). {then}"


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
    """Return lines on known trials that other or unknown code has made."""
    prefix = "taken as the same code" if same_code else "source"
    lines = [f"{prefix}: {text}" for text in summarize_differences(facts.differing)]
    if facts.unsourced:
        lines.append(
            f"source: {len(facts.unsourced)} known trials have no record of their code; they count"
        )
    if facts.earlier:
        lines.append(
            f"source: {len(facts.earlier)} known trials were made by earlier code that gives the "
            "same numbers; they count"
        )
    return lines


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
        """Add a study's pending trials that no earlier study has; return a line on the study."""
        state, design = self.progression.studies[name], self.plan.spec.studies[name]
        seeds, folds = len(self.plan.list_seeds(name)), len(self.plan.list_folds(name))
        trials = {cell.trial_id for cell in state.cells}
        settled = [cell.trial_id for cell in state.cells if self.progression.is_settled(cell)]
        trained = {trial for trial in trials if self.progression.facts[trial].status == "done"}
        shared = {self._first_study[trial] for trial in trials if trial in self._first_study}
        hidden = 0 if state.blocked else state.size - len(state.cells)
        # estimate the time of new trials
        ended = trained.union(settled, self._first_study)
        new_cells = {cell.trial_id: cell for cell in state.cells if cell.trial_id not in ended}
        estimate = Estimate()
        for total in (estimate, self.estimate):
            for cell in new_cells.values():
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
        if folds > 1:
            text += f" × {folds} {'folds' if design.splits is None else 'splits'}"
        if ENSEMBLE in design.evaluate:
            text += " and their ensemble"
        text += f", {len(settled)} known already"
        if shared:
            text += f", shares trials with {', '.join(sorted(shared))}"
        if state.blocked:
            text += f", blocked: {state.blocked}"
        elif hidden:
            text += f", {hidden} follow from results"
        if estimate.unknown:
            text += ", time unknown"
        elif estimate.trials:
            text += f", about {format_duration(estimate.seconds)}"
        return text

    def describe_trials(self, parallel: int, threads: int) -> str:
        """Return a line on the trials of all studies."""
        text = f"{len(self.todo)} trials to run now and {self.later} later"
        if self.again:
            text += f", {len(self.again)} finished ones to be evaluated again"
        return f"{text}; {parallel} at once, {threads} thread(s) each"

    def describe_time(self, parallel: int, *, piloted: bool) -> list[str]:
        """Return lines on the time of all studies with `parallel` trials at once."""
        if self.estimate.unknown:
            remedy = "" if piloted else "; --pilot times a few steps of each kind"
            text = f"no trial like {self.estimate.unknown} of these is in the ledger{remedy}"
            return [f"time: unknown: {text}"]
        seconds = max(self.estimate.seconds / parallel, self.estimate.longest)
        bound = ", if no scheduler stopped any" if self.progression.legs else ""
        lines = [f"time: about {format_duration(seconds)}{bound}"]
        if self.gpus:
            hours = self.gpus * self.estimate.seconds / 3600
            lines.append(f"in all: about {hours:.2g} GPU-hours")
        return lines


def _find_pending_kinds(plan: Plan, progression: Progression) -> dict[str, dict[str, Any]]:
    """Return one configuration of each kind of pending trial."""
    configs = []
    for state in progression.studies.values():
        pending = [cell for cell in state.cells if not progression.is_settled(cell)]
        configs += [cell.config for cell in pending if cell.error is None]
        if len(state.cells) < state.size and not state.blocked:
            configs.append(build_example_config(plan, state))
    return {build_cost_key(config): config for config in configs}
