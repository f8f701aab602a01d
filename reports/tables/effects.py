"""Main effects, interactions and Shapley attribution of a study's factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.frame import Frame
from reports.recipe import Table
from reports.stats import shapley
from reports.stats.factorial import Effect, Fit, factorial
from reports.stats.paired import holm
from reports.stats.shapley import Attribution
from reports.tables.cells import (
    Cells,
    Levels,
    cells_of,
    fold_notes,
    gaps,
    levels_of,
    protocol_note,
    race_notes,
)
from reports.tables.labels import (
    coordinate_name,
    metric_label,
    number,
    p_text,
    scale,
    signed,
    slug,
    with_interval,
)
from reports.tables.model import Field, Sheet

if TYPE_CHECKING:
    import pandas as pd

Term = tuple[str, ...]
COLUMNS = (
    *("metric", "term", "levels", "effect", "se", "low", "high", "spread", "best", "share"),
    *("df", "f", "p", "p_holm", "shapley", "shapley_low", "shapley_high", "n", "error"),
    "error_df",
)
ALIASED_SHOWN = 6


@dataclass
class _Block:
    """What one metric adds to the sheet."""

    rows: list[tuple[Field, ...]]
    numbers: list[tuple[Any, ...]]
    notes: list[str]


def effects(frame: Frame, recipe: Table, cells: pd.DataFrame) -> Sheet:
    """Return a row per term and metric; a note names terms that the design cannot tell apart."""
    levels = levels_of(frame, cells)
    worth = {metric: cells_of(frame, cells, metric) for metric in recipe.metrics}
    with_shapley = is_full(worth[recipe.metrics[0]], levels)
    several = len(recipe.metrics) > 1
    blocks = [
        _block(recipe, metric, data, levels, with_shapley=with_shapley)
        for metric, data in worth.items()
    ]
    remarks = dict.fromkeys(note for block in blocks for note in block.notes)
    unit = ", points" if all(scale(metric) != 1 for metric in recipe.metrics) else ""
    headers = (
        *(("metric",) if several else ()),
        "term",
        "levels",
        f"effect [95 %]{unit}",
        "p (Holm)",
        "variation (%)",
        *((f"Shapley [95 %]{unit}",) if with_shapley else ()),
    )
    return Sheet(
        recipe,
        slug(f"effects_{recipe.study}"),
        recipe.title or f"{recipe.study}: effects",
        headers,
        3 if several else 2,
        tuple(row for block in blocks for row in block.rows),
        COLUMNS,
        tuple(row for block in blocks for row in block.numbers),
        (
            protocol_note(frame, recipe.metrics),
            *fold_notes(cells, recipe.metrics),
            *race_notes(frame, recipe.study),
            *remarks,
            *(f"Without a result: {gap}." for gap in gaps(cells)),
        ),
    )


def _block(
    recipe: Table, metric: str, data: Cells, levels: Levels, *, with_shapley: bool
) -> _Block:
    fit = factorial(data, order=recipe.order, levels=levels)
    name, digits = metric_label(metric), recipe.digits
    if fit is None:
        return _Block([], [], [f"{name}: no two finished cells differ, so there are no effects."])
    p = dict(zip((e.term for e in fit.effects), holm([e.p for e in fit.effects]), strict=True))
    whole = attribute(data, levels) if with_shapley else None
    shown = _shown(fit, recipe.top)
    rows = []
    for effect in shown:
        row = [name] if len(recipe.metrics) > 1 else []
        row += [
            _name_term(effect.term),
            _level_text(effect.term, levels),
            _size(effect, metric, digits),
            p_text(p[effect.term]),
            "–" if fit.flat else f"{100 * effect.share:.1f}",
        ]
        if with_shapley:
            value, ends = _attributed(effect.term, whole)
            row.append("" if value is None else with_interval(value, *ends, metric, digits))
        rows.append(tuple(map(Field, row)))
    numbers = []
    for e in fit.effects:
        of_term = (metric, "*".join(e.term), _level_text(e.term, levels))
        size = (e.estimate, e.se, e.low, e.high, e.spread, " ".join(e.best), e.share)
        test = (e.df, e.f, e.p, p[e.term])
        value, ends = _attributed(e.term, whole)
        numbers.append((*of_term, *size, *test, value, *ends, fit.n, fit.error, fit.error_df))
    notes = _notes(fit, len(shown), metric, digits)
    if with_shapley:
        notes.append(attribution_note(whole, levels, metric, digits))
    return _Block(rows, numbers, notes)


def _shown(fit: Fit, top: int) -> list[Effect]:
    """Return all main effects, then the `top` largest interactions."""
    mains = [e for e in fit.effects if len(e.term) == 1]
    mixed = sorted((e for e in fit.effects if len(e.term) > 1), key=lambda e: -e.spread)
    return mains + mixed[:top]


def _name_term(term: Term) -> str:
    return " × ".join(coordinate_name(name) for name in term)


def _level_text(term: Term, levels: Levels) -> str:
    if len(term) > 1:
        return ""
    mine = levels[term[0]]
    return f"{mine[0]} → {mine[1]}" if len(mine) == 2 else f"{len(mine)} levels"


def _size(effect: Effect, metric: str, digits: int) -> str:
    """Write `+0.52 [+0.11, +0.93]`; for more than two levels `range 1.20, best at 0.1`."""
    if effect.estimate is None:
        best = ", ".join(effect.best)
        return f"range {number(effect.spread * scale(metric), digits)}, best at {best}"
    return with_interval(effect.estimate, effect.low, effect.high, metric, digits)


def _notes(fit: Fit, shown: int, metric: str, digits: int) -> list[str]:
    notes = []
    if fit.flat:
        notes.append(
            f"{metric_label(metric)}: no effect. Every cell has the same value at every seed, so "
            "that there is no variation to share out."
        )
    if any(e.estimate is not None for e in fit.effects):
        notes.append(
            "Effect: mean at the second level − mean at the first, over the other factors; of an "
            "interaction: half the difference between one factor's effects at the other's levels."
        )
    if any(e.estimate is None for e in fit.effects):
        notes.append(
            "Range: largest − smallest fitted mean over the levels (of an interaction: deviation "
            "from the sum of the main effects)."
        )
    if fit.sigma is None:
        notes.append(
            f"{metric_label(metric)}: least squares over {fit.n} values of {fit.cells} cells; no "
            "degrees of freedom for error, so no intervals and no tests: more seeds give them."
        )
    else:
        source = "cells × seeds" if fit.error == "replicates" else "what the terms leave over"
        notes.append(
            f"{metric_label(metric)}: least squares over {fit.n} values of {fit.cells} cells, "
            f"seeds as blocks; error from {source}, sd "
            f"{number(fit.sigma * scale(metric), digits)} with {fit.error_df} degrees of freedom. "
            f"p: F test, Holm-corrected over {len(fit.effects)} terms."
        )
    notes.append("Variation: the term's sum of squares over that between cells.")
    if shown < len(fit.effects):
        notes.append(f"Not shown: the {len(fit.effects) - shown} smallest interactions (CSV: all).")
    if fit.aliased:
        mixed_up = [
            f"{_name_term(term)} with {', '.join(map(_name_term, mixed)) or 'missing cells'}"
            for term, mixed in list(fit.aliased.items())[:ALIASED_SHOWN]
        ]
        more = len(fit.aliased) - len(mixed_up)
        notes.append(
            f"Cannot be told apart in this design: {'; '.join(mixed_up)}"
            + (f"; and {more} more" if more else "")
            + "."
        )
    return notes


def is_full(data: Cells, levels: Levels) -> bool:
    """Tell whether this is a full factorial of two or more factors with two levels each."""
    varied = [mine for mine in levels.values() if len(mine) > 1]
    two = len(varied) > 1 and all(len(mine) == 2 for mine in varied)
    return two and len(data) == 2 ** len(varied)


def attribute(data: Cells, levels: Levels) -> Attribution | None:
    """Return the Shapley attribution; a factor's second level is the component being there."""
    second = {name: mine[1] for name, mine in levels.items() if len(mine) > 1}
    return shapley.attribution(
        {frozenset(n for n in second if coords[n] == second[n]): values for coords, values in data}
    )


def _attributed(
    term: Term, whole: Attribution | None
) -> tuple[float | None, tuple[float | None, float | None]]:
    """Return a factor's Shapley value and the ends of its interval."""
    if whole is None or len(term) > 1:
        return None, (None, None)
    return whole.values[term[0]], whole.intervals[term[0]] or (None, None)


def attribution_note(whole: Attribution | None, levels: Levels, metric: str, digits: int) -> str:
    """Explain Shapley values: a component's mean gain over all orders of adding them."""
    name = metric_label(metric)
    if whole is None:
        return f"Shapley, {name}: none, no seed has every cell."
    ends = "all on − all off"
    if any(mine != ["off", "on"] for mine in levels.values() if len(mine) == 2):
        ends = "all at their second level − all at their first"
    text = (
        f"Shapley, {name}: mean gain of adding a component over all orders; they sum to {ends} = "
        f"{signed(whole.total, metric, digits)}. "
    )
    several = len(whole.seeds) > 1
    text += (
        f"Interval: t over {len(whole.seeds)} seeds."
        if several
        else ("One seed gives no interval.")
    )
    if whole.dropped:
        text += f" Left out, without every cell: seed {', '.join(map(str, whole.dropped))}."
    return text
