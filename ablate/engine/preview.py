"""What a plan would do, as text: cells, what is shared, what is known, the time it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from ablate.designs.base import ENSEMBLE
from ablate.engine.check_training import Trainings
from ablate.engine.estimates import (
    Kind,
    Rate,
    Total,
    kind,
    known_rates,
    pilot_rates,
    side_by_side,
)
from ablate.engine.preflight import (
    Absent,
    absent_weights,
    as_it_is,
    check_classes,
    check_readable,
    describe_stores,
)
from ablate.engine.presence import duration
from ablate.engine.ray.resources import at_once
from ablate.engine.settings import Settings
from ablate.ledger.facts import Facts
from ablate.ledger.sources import refusal, summary
from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.sweep.state import StudyState
from trainables.errors import ConfigError


@dataclass(frozen=True)
class Preview:
    """A printable account, and why the plan would be refused, if it would.

    runnable: False where a pilot was tried of every kind of trial, and none could run.
    """

    text: str
    refused: ConfigError | None
    runnable: bool


def preview(plan: Plan, settings: Settings, *, pilot: bool = False) -> str:
    """Return the printable account alone."""
    return examine(plan, settings, pilot=pilot).text


def examine(plan: Plan, settings: Settings, *, pilot: bool = False) -> Preview:
    """Tell what a plan would do; no trial is run, and no ledger is made where there is none.

    Args:
        pilot: time a few steps of each kind of trial of which the ledger has none.

    Raises:
        ConfigError: too few classes for the splits or the batches of a trial that is left to do.
    """
    cache, device = settings.cache, settings.request.device
    with as_it_is(settings.ledger) as ledger:
        facts = settings.facts(ledger)
        progression = Progression(plan, facts, record=False)
        while progression.advance():
            pass
        warnings, absent, stores = advice.warnings(plan), list[Absent](), list[str]()
        trainings = None
        if settings.reads_data:
            warnings += check_classes(plan, progression, cache)
            trainings = Trainings(plan, progression, cache)
            warnings += trainings.warnings()
            stores = describe_stores(plan, progression, cache)
            stores += check_readable(plan, progression, cache)
            absent = absent_weights(plan, progression, cache, device)
        rates = known_rates(ledger)
        wanted = _kinds(plan, progression) if pilot else {}
        unknown = [config for key, config in wanted.items() if key not in rates]
        piloted, failed = pilot_rates(unknown, settings)
        account = Account(plan, progression, rates | piloted, settings.request.gpus)
        lines = [f"sweep {plan.spec.name} ({plan.sweep_id}), objective {plan.spec.objective}"]
        for name in plan.order:
            head, *notes = account.study(name)
            own = trainings.line(name) if trainings is not None else []
            lines += [head, *(f"    {text}" for text in own), *notes]
        lines += [f"warning: {text}" for text in warnings]
        lines += [f"data: {text}" for text in stores]
        lines += [f"weights: {each}" for each in absent]
        lines += [f"warning: no trial like this can run: {reason}" for reason in failed.values()]
        parallel, again = at_once(settings.request), len(account.again)
        more = f", {again} finished ones to be evaluated again" if again else ""
        lines.append(
            f"{len(account.todo)} trials to run now and {account.later} later{more}; "
            f"{parallel} at once, {settings.request.threads} thread(s) each"
        )
        lines += side_by_side(piloted.values(), parallel, psutil.virtual_memory().total)
        lines += account.time(parallel, piloted=pilot)
        lines += source_lines(facts, same_code=settings.same_code)
    return Preview(
        "\n".join(lines),
        refused=None if settings.same_code else refusal(facts.differing),
        runnable=not failed or not failed.keys() >= wanted.keys(),
    )


def source_lines(facts: Facts, *, same_code: bool) -> list[str]:
    """Tell what of the known trials was made by other code, or by nobody knows which."""
    word = "taken as the same code" if same_code else "source"
    lines = [f"{word}: {text}" for text in summary(facts.differing)]
    if facts.unsourced:
        n = len(facts.unsourced)
        lines.append(f"source: unknown of {n} known trials, older than it is kept; they are taken")
    if facts.earlier:
        lines.append(
            f"source: {len(facts.earlier)} known trials were made by earlier code that was shown "
            "to give the same numbers; they are taken"
        )
    return lines


class Account:
    """Goes through the studies in their order and adds up what each leaves to do.

    todo: trials that are to train; later: how many more follow from results. again: trials that
    have trained and lack a split, a metric or an ensemble; the time of that is not in the estimate,
    which knows of epochs only.
    """

    def __init__(
        self, plan: Plan, progression: Progression, rates: Mapping[str, Rate], gpus: float
    ) -> None:
        self.plan, self.progression, self.rates, self.gpus = plan, progression, rates, gpus
        self.total = Total()
        self.todo: set[str] = set()
        self.again: set[str] = set()
        self.later = 0
        self._seen: dict[str, str] = {}  # trial → the study that named it first

    def study(self, name: str) -> list[str]:
        """Return a line on a study, and its design's notes."""
        state, seeds = self.progression.studies[name], len(self.plan.seeds(name))
        known = [cell for cell in state.cells if self.progression.settled(cell)]
        shared = {self._seen[c.trial_id] for c in state.cells if c.trial_id in self._seen}
        hidden = 0 if state.blocked else state.size - len(state.cells)
        spent = self._add(state, {cell.trial_id for cell in known}, hidden)
        design = self.plan.spec.studies[name]
        folds = len(self.plan.folds(name))
        text = f"  {name}: {design.design}, {state.size // seeds // folds} cells × {seeds} seeds"
        text += f" × {folds} folds" if folds > 1 else ""
        text += " and their ensemble" if ENSEMBLE in design.evaluate else ""
        text += f", {len(known)} known already"
        if shared:
            text += f", shares trials with {', '.join(sorted(shared))}"
        if state.blocked:
            text += f", blocked: {state.blocked}"
        elif hidden:
            text += f", {hidden} follow from results"
        if spent.trials or spent.unknown:
            text += ", time unknown" if spent.unknown else f", {_about(spent, self.rates)}"
            text += f", {self._gpu_hours(spent)}" if self.gpus and not spent.unknown else ""
        for cell in state.cells:
            self._seen.setdefault(cell.trial_id, name)
        return [text, *(f"    {note}" for note in advice.notes(self.plan, name))]

    def _add(self, state: StudyState, settled: set[str], hidden: int) -> Total:
        """Add up what a study leaves to do that no study before it does."""
        spent = Total()
        facts = self.progression.facts
        trained = {c.trial_id for c in state.cells if facts[c.trial_id].status == "done"}
        self.again |= trained - settled
        counted = settled | trained | self._seen.keys() | self.todo
        fresh = {cell.trial_id: cell for cell in state.cells if cell.trial_id not in counted}
        for total in (spent, self.total):
            for cell in fresh.values():
                if cell.error is None:
                    total.add(cell.config, self.rates)
            if hidden:
                total.add(_typical(self.plan, state), self.rates, hidden)
        self.todo |= {cell.trial_id for cell in state.cells} - settled - trained
        self.later += hidden
        return spent

    def time(self, parallel: int, *, piloted: bool) -> list[str]:
        if self.total.unknown:
            few = "" if piloted else "; --pilot times a few steps of each kind"
            text = f"no trial like {self.total.unknown} of these is in the ledger{few}"
            return [f"time: unknown: {text}"]
        bound = ", if no scheduler stopped any" if self.progression.legs else ""
        start = max((self.rates[key].start for key in self.total.epochs), default=0.0)
        lines = [f"time: {_about(self.total, self.rates, parallel, start)}{bound}"]
        if start >= 0.5:
            lines[0] += f"; {duration(start)} of it until trials begin"
        if self.gpus:
            lines.append(f"in all: {self._gpu_hours(self.total)}")
        return lines

    def _gpu_hours(self, spent: Total) -> str:
        return f"about {self.gpus * spent.seconds(self.rates)[0] / 3600:.2g} GPU-hours"


def _kinds(plan: Plan, progression: Progression) -> dict[Kind, dict[str, Any]]:
    """Return a configuration of each kind of trial that is left to do."""
    kinds: dict[Kind, dict[str, Any]] = {}
    states = progression.studies.values()
    for state in states:
        for cell in state.cells:
            if cell.error is None and not progression.settled(cell):
                kinds.setdefault(kind(cell.config), cell.config)
    for state in states:
        if len(state.cells) < state.size and not state.blocked:
            config = _typical(plan, state)
            kinds.setdefault(kind(config), config)
    return kinds


def _typical(plan: Plan, state: StudyState) -> dict[str, Any]:
    """Return a configuration like those of a study's cells that are not known yet."""
    valid = [cell.config for cell in state.cells if cell.error is None]
    if valid:
        return valid[0]
    study = plan.spec.studies[state.name]
    point = study.representatives()[0]
    return plan.resolved(state.name, point, plan.example(state.name)).model_dump(mode="json")


def _about(total: Total, rates: Mapping[str, Rate], parallel: int = 1, start: float = 0.0) -> str:
    """Say how long trials take, `start` seconds before the first of them included."""
    mid, error = total.seconds(rates)
    low, middle, high = (
        duration(start + max(seconds / parallel, total.longest(rates)))
        for seconds in (max(0.0, mid - 2 * error), mid, mid + 2 * error)
    )
    return f"about {middle}" + (f" ({low} to {high})" if error > 0.02 * mid else "")
