"""Estimate main effects, interactions and Shapley attribution of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.frame import Frame
from reports.recipe import Table
from reports.stats import shapley
from reports.stats.blocks import SharedError
from reports.stats.factorial import Effect, Fit, fit_factorial
from reports.stats.paired import adjust_by_holm
from reports.stats.shapley import Attribution
from reports.tables import labels
from reports.tables.cells import (
    Cells,
    Levels,
    collect_factor_cells,
    collect_levels,
    explain_measurement,
    list_missing_seeds,
)
from reports.tables.judging import find_resolution
from reports.tables.model import Field, Sheet

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("metric", "term", "levels", "effect", "se", "low", "high", "spread", "best", "share"),
    *("df", "f", "p", "p_holm", "shapley", "shapley_low", "shapley_high", "n", "error"),
    "error_df",
)
ALIASED_SHOWN = 6


def effects(frame: Frame, recipe: Table, cells: pd.DataFrame) -> Sheet:
    """Return a row per term and metric; a note names terms that the design cannot tell apart.

    Example:
        >>> Table(kind="effects", study="terms", metrics=("test/map_at_r",)).digits
        2
    """
    levels = collect_levels(frame, cells)
    worth = {metric: collect_factor_cells(frame, cells, metric) for metric in recipe.metrics}
    with_shapley = is_full(worth[recipe.metrics[0]], levels)
    several = len(recipe.metrics) > 1
    rows: list[tuple[Field, ...]] = []
    numbers: list[tuple[Any, ...]] = []
    notes: list[str] = []
    for metric, data in worth.items():
        name, digits = labels.format_metric_label(metric), recipe.digits
        resolution = find_resolution(cells, metric)
        family = (
            sum(len(factor_levels) > 1 for factor_levels in levels.values()) + 1
        )  # main effects, and the total
        fit = fit_factorial(
            data, order=recipe.order, levels=levels, resolution=resolution, family=family
        )
        if fit is None:
            notes.append(f"{name}: no two finished cells differ, so there are no effects.")
            continue
        attribution = (
            attribute_with_error(data, levels, resolution, recipe.order) if with_shapley else None
        )
        mixed = sorted((e for e in fit.effects if len(e.term) > 1), key=lambda e: -e.spread)
        shown_effects = [*(e for e in fit.effects if len(e.term) == 1), *mixed[: recipe.top]]
        corrected = dict(zip(fit.effects, adjust_by_holm([e.p for e in fit.effects]), strict=True))
        share: dict[Effect, tuple[float | None, ...]] = dict.fromkeys(fit.effects, (None,) * 3)
        for e in fit.effects:
            if attribution is not None and len(e.term) == 1:
                ends = attribution.intervals[e.term[0]] or (None, None)
                share[e] = (attribution.values[e.term[0]], *ends)
        for e in shown_effects:
            row = [name] if several else []
            row += [
                _format_term(e.term),
                _format_levels(e.term, levels),
                _format_effect(e, metric, digits),
                labels.format_p(corrected[e]),
                "–" if fit.flat else f"{100 * e.share:.1f}",
            ]
            if with_shapley:
                value, low, high = share[e]
                of_sum = labels.format_with_interval(value or 0.0, low, high, metric, digits)
                row.append("" if value is None else of_sum)
            rows.append(tuple(map(Field, row)))
        for e in fit.effects:
            of_term = (metric, "*".join(e.term), _format_levels(e.term, levels))
            size = (e.estimate, e.se, e.low, e.high, e.spread, " ".join(e.best), e.share)
            test = (e.df, e.f, e.p, corrected[e])
            numbers.append((*of_term, *size, *test, *share[e], fit.n, fit.error, fit.error_df))
        notes += _build_effect_notes(fit, len(shown_effects), metric, digits)
        if with_shapley:
            notes.append(explain_attribution(attribution, levels, metric, digits))
    unit = ", points" if all(labels.display_scale(metric) != 1 for metric in recipe.metrics) else ""
    headers = (
        *(("metric",) if several else ()),
        *("term", "levels", f"effect [95 %]{unit}", "p (Holm)", "variation (%)"),
        *((f"Shapley [95 %]{unit}",) if with_shapley else ()),
    )
    return Sheet(
        recipe,
        labels.to_slug(f"effects_{recipe.study}"),
        recipe.title or f"{recipe.study}: effects",
        headers,
        3 if several else 2,
        tuple(rows),
        COLUMNS,
        tuple(numbers),
        (
            *explain_measurement(frame, recipe, cells),
            *dict.fromkeys(notes),
            *(f"Without a result: {gap}." for gap in list_missing_seeds(cells)),
        ),
    )


def _format_term(term: tuple[str, ...]) -> str:
    return " × ".join(map(labels.format_coordinate, term))


def _format_levels(term: tuple[str, ...], levels: Levels) -> str:
    if len(term) > 1:
        return ""
    factor_levels = levels[term[0]]
    return " → ".join(factor_levels) if len(factor_levels) == 2 else f"{len(factor_levels)} levels"


def _format_effect(effect: Effect, metric: str, digits: int) -> str:
    """Write `+0.52 [+0.11, +0.93]`, or `range 1.20, best at 0.1` for more than two levels."""
    if effect.estimate is None:
        spread = labels.format_number(effect.spread * labels.display_scale(metric), digits)
        return f"range {spread}, best at {', '.join(effect.best)}"
    return labels.format_with_interval(effect.estimate, effect.low, effect.high, metric, digits)


def _build_effect_notes(fit: Fit, shown_count: int, metric: str, digits: int) -> list[str]:
    name, notes = labels.format_metric_label(metric), []
    if fit.flat:
        notes.append(
            f"{name}: no effect. Every cell has the same value at every seed, so that there is no "
            "variation to share out."
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
    squares = f"{name}: least squares over {fit.n} values of {fit.cells} cells"
    if fit.sigma is None:
        notes.append(
            f"{squares}; no degrees of freedom for error, so no intervals and no tests: more "
            "seeds give them."
        )
    else:
        source = "cells × seeds" if fit.error == "replicates" else "what the terms leave over"
        if fit.distinct < fit.cells:
            source += f" ({fit.distinct} distinct cells; copies count once)"
        notes.append(
            f"{squares}, seeds as blocks; error from {source}, sd "
            f"{labels.format_number(fit.sigma * labels.display_scale(metric), digits)} with "
            f"{fit.error_df} degrees of freedom. p: F test, Holm-corrected over {len(fit.effects)} "
            "terms."
        )
    notes.append("Variation: ω², the term's share of the variation between cells without noise.")
    if shown_count < len(fit.effects):
        notes.append(
            f"Not shown: the {len(fit.effects) - shown_count} smallest interactions (CSV: all)."
        )
    if fit.aliased:
        mixed_up = [
            f"{_format_term(term)} with {', '.join(map(_format_term, mixed)) or 'missing cells'}"
            for term, mixed in list(fit.aliased.items())[:ALIASED_SHOWN]
        ]
        more = len(fit.aliased) - len(mixed_up)
        remainder = f"; and {more} more" if more else ""
        notes.append(f"Cannot be told apart in this design: {'; '.join(mixed_up)}{remainder}.")
    return notes


def is_full(data: Cells, levels: Levels) -> bool:
    """Return whether this is a full factorial of two or more factors with two levels each."""
    counts = [len(factor_levels) for factor_levels in levels.values() if len(factor_levels) > 1]
    return len(counts) > 1 and set(counts) == {2} and len(data) == 2 ** len(counts)


def attribute_with_error(
    data: Cells, levels: Levels, resolution: float, order: int = 2
) -> Attribution | None:
    """Return the Shapley attribution; the second level of a factor means that the component is on.

    Intervals use the error of the factorial with interactions of `order` factors.
    """
    second = {
        name: factor_levels[1] for name, factor_levels in levels.items() if len(factor_levels) > 1
    }
    family = len(second) + 1
    fit = fit_factorial(data, order=order, levels=levels, resolution=resolution, family=family)
    error = None
    if fit is not None and fit.sigma is not None:
        error = SharedError(fit.sigma, fit.error_df)
    return shapley.attribute_over_seeds(
        {frozenset(n for n in second if coords[n] == second[n]): values for coords, values in data},
        error,
        resolution=resolution,
        family=family,
    )


def explain_attribution(whole: Attribution | None, levels: Levels, metric: str, digits: int) -> str:
    """Explain Shapley values: a component's mean gain over all orders of adding them."""
    name = labels.format_metric_label(metric)
    if whole is None:
        return f"Shapley, {name}: none, no seed has every cell."
    ends = "all on − all off"
    if any(
        factor_levels != ["off", "on"]
        for factor_levels in levels.values()
        if len(factor_levels) == 2
    ):
        ends = "all at their second level − all at their first"
    interval = "Interval: from the error of the effects above."
    if all(ends is None for ends in whole.intervals.values()):
        interval = "No error, so no interval: more seeds give one."
    text = (
        f"Shapley, {name}: mean gain of adding a component over all orders; they sum to {ends} = "
        f"{labels.format_signed_metric(whole.total, metric, digits)}. {interval}"
    )
    if whole.dropped:
        text += f" Left out, without every cell: seed {', '.join(map(str, whole.dropped))}."
    return text
