"""What a plan would do, as text: cells, what is shared, what is known, the time it may take."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.engine import Settings
from ablate.ledger import Ledger
from ablate.plan import Cell, Plan
from ablate.progress import duration
from ablate.progression import Facts, Progression
from ablate.resources import cores


def preview(plan: Plan, settings: Settings) -> str:
    """A printable account; nothing is run, and no ledger is made where there is none."""
    if settings.ledger.is_file():
        with Ledger(settings.ledger) as ledger:
            return _account(plan, settings, ledger)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "none.sqlite") as ledger:
        return _account(plan, settings, ledger)


def _account(plan: Plan, settings: Settings, ledger: Ledger) -> str:
    facts = Facts(ledger, settings.evaluator, retry_failed=settings.retry_failed)
    progression = Progression(plan, facts, record=False)
    while progression.advance():
        pass
    rates = epoch_seconds(ledger)
    lines = [f"sweep {plan.spec.name} ({plan.sweep_id}), objective {plan.spec.objective}"]
    seen: dict[str, str] = {}
    todo: set[str] = set()
    later = 0
    total, unknown = 0.0, 0
    for name in plan.order:
        state = progression.studies[name]
        known = [cell for cell in state.cells if progression.settled(cell)]
        settled = {cell.trial_id for cell in known}
        shared = {seen[c.trial_id] for c in state.cells if c.trial_id in seen}
        counted = settled | seen.keys() | todo
        fresh = {c.trial_id: c for c in state.cells if c.trial_id not in counted}
        times = [estimate(cell, rates) for cell in fresh.values()]
        todo |= {cell.trial_id for cell in state.cells} - settled
        hidden = state.size - len(state.cells)
        later += hidden
        typical = [estimate(cell, rates) for cell in state.cells[:1]] or [
            epochs_of(plan, name) * rate if (rate := _rate(plan, name, rates)) else None
        ]
        times += typical * hidden
        unknown += sum(time is None for time in times)
        spent = sum(time for time in times if time is not None)
        total += spent
        cells = state.size // len(plan.seeds(name))
        design = plan.spec.studies[name].design
        text = f"  {name}: {design}, {cells} cells × {len(plan.seeds(name))} seeds"
        text += f", {len(known)} known already"
        if shared:
            text += f", shares trials with {', '.join(sorted(shared))}"
        if state.blocked:
            text += f", blocked: {state.blocked}"
        elif hidden:
            text += f", {hidden} follow from results"
        if times:
            text += f", about {duration(spent)}" if None not in times else ", time unknown"
        lines.append(text)
        lines += [f"    {note}" for note in plan.spec.studies[name].notes()]
        for cell in state.cells:
            seen.setdefault(cell.trial_id, name)
    lines += [f"warning: {text}" for text in plan.warnings()]
    parallel = max(1, int(cores() // settings.request.cpus)) if not settings.request.gpus else 1
    where = f"{parallel} at once, {settings.request.threads} thread(s) each"
    lines.append(f"{len(todo)} trials to run now and {later} later; {where}")
    if unknown:
        lines.append("time: unknown: the ledger has no finished trial like some of these")
    else:
        lines.append(f"time: about {duration(total / parallel)}")
    return "\n".join(lines)


Like = tuple[Any, ...]


def like(config: Mapping[str, Any]) -> Like:
    """What trials must share for one's epoch to tell of the other's duration."""
    return (
        config["data"]["name"], config["data"]["image_size"], config["backbone"]["name"],
        config["backbone"]["mode"], config["method"]["name"], config["loss"]["name"],
    )  # fmt: skip


def epoch_seconds(ledger: Ledger) -> dict[Like, float]:
    """Median seconds per epoch of finished trials, by kind."""
    found: dict[Like, list[float]] = {}
    for row in ledger.rows("SELECT config_json, seconds, epochs FROM trials WHERE status='done'"):
        if row["epochs"] and row["seconds"] is not None:
            found.setdefault(like(row["config"]), []).append(row["seconds"] / row["epochs"])
    return {kind: statistics.median(rates) for kind, rates in found.items()}


def estimate(cell: Cell, rates: Mapping[Like, float]) -> float | None:
    """Seconds that a cell's trial may take; 0 where it cannot be trained at all."""
    if cell.error is not None:
        return 0.0
    rate = rates.get(like(cell.config))
    return None if rate is None else float(rate * cell.config["training"]["epochs"])


def _centre(plan: Plan, name: str) -> dict[str, Any]:
    study = plan.spec.studies[name]
    point = None if study.design != "compare" else study.listed[0]
    return plan.resolved(name, point).model_dump(mode="json")


def _rate(plan: Plan, name: str, rates: Mapping[Like, float]) -> float | None:
    return rates.get(like(_centre(plan, name)))


def epochs_of(plan: Plan, name: str) -> float:
    return float(_centre(plan, name)["training"]["epochs"])
