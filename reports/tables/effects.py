"""Estimate main effects, interactions and Shapley attribution of a study."""

from dataclasses import dataclass
from typing import Any

from reports.frame import DataFrame, Frame
from reports.recipe import Table
from reports.stats.blocks import LEVEL, SharedError
from reports.stats.factorial import Attribution, Effect, Fit, attribute_over_seeds, fit_factorial
from reports.stats.paired import adjust_by_holm
from reports.tables import labels
from reports.tables.cells import (
    Cells,
    Levels,
    collect_factor_cells,
    collect_levels,
    describe_failures,
    explain_measurement,
    find_failures,
    find_level,
    find_resolution,
    find_sign,
    list_missing_seeds,
)
from reports.tables.model import Field, Sheet
from trainables.words.metrics import display_scale, format_metric_label

COLUMNS = (
    *("metric", "term", "levels", "effect", "se", "low", "high", "spread", "best", "share"),
    *("df", "f", "p", "p_holm", "shapley", "shapley_low", "shapley_high", "n", "error"),
    "error_df",
)
NOTHING = (None, None, None)  # Shapley value and interval of a term that has none


def estimate_effects(frame: Frame, recipe: Table, cells: DataFrame) -> Sheet:
    """Return a row per metric and term, which is a factor or an interaction of factors.

    A note names the terms that the design cannot tell apart.
    """
    factorials = {m: fit_study(frame, cells, m, recipe.order) for m in recipe.metrics}
    with_shapley = factorials[recipe.metrics[0]].is_full
    several = len(recipe.metrics) > 1
    rows: list[tuple[Field, ...]] = []
    numbers: list[tuple[Any, ...]] = []
    notes: list[str] = []
    for metric, factorial in factorials.items():
        label, digits = format_metric_label(metric), recipe.digits
        fit, levels = factorial.fit, factorial.levels
        if fit is None:
            notes.append(f"{label}: no two finished cells differ, so there are no effects.")
            continue
        attribution = attribute_with_error(factorial) if with_shapley else None
        # term → its Shapley value and the ends of the interval
        shapley: dict[tuple[str, ...], tuple[float | None, float | None, float | None]] = {}
        if attribution is not None:
            ends = attribution.intervals
            shapley = {(name,): (value, *ends[name]) for name, value in attribution.values.items()}
        corrected = dict(zip(fit.effects, adjust_by_holm([e.p for e in fit.effects]), strict=True))
        interactions = [effect for effect in fit.effects if len(effect.term) > 1]
        interactions.sort(key=lambda effect: -effect.spread)
        printed = [effect for effect in fit.effects if len(effect.term) == 1]
        printed += interactions[: recipe.top]
        for effect in printed:
            fields = [label] if several else []
            fields += [
                _format_term(effect.term),
                _format_levels(effect.term, levels),
                _format_effect(effect, metric, digits),
                labels.format_p(corrected[effect]),
                "–" if fit.flat else f"{100 * effect.share:.1f}",
            ]
            if with_shapley:
                value, low, high = shapley.get(effect.term, NOTHING)
                gain = labels.format_with_interval(value or 0.0, low, high, metric, digits)
                fields.append("" if value is None else gain)
            rows.append(tuple(map(Field, fields)))
        for e in fit.effects:  # numbers for CSV
            term = (metric, "*".join(e.term), _format_levels(e.term, levels))
            size = (e.estimate, e.se, e.low, e.high, e.spread, " ".join(e.best), e.share)
            test = (e.df, e.f, e.p, corrected[e])
            attributed = shapley.get(e.term, NOTHING)
            numbers.append((*term, *size, *test, *attributed, fit.n, fit.error, fit.error_df))
        notes += _explain_fit(fit, len(printed), metric, digits)
        if with_shapley:
            notes.append(explain_attribution(attribution, levels, metric, digits))
    failed = describe_failures(int(find_failures(cells).sum()), len(cells))
    unit = ", points" if all(display_scale(metric) != 1 for metric in recipe.metrics) else ""
    interval = f"[{labels.format_confidence(find_level(frame, recipe.study))}]{unit}"
    headers = (
        *(("metric",) if several else ()),
        *("term", "levels", f"effect {interval}", "p (Holm)", "variation (%)"),
        *((f"Shapley {interval}",) if with_shapley else ()),
    )
    return Sheet(
        recipe,
        key=labels.to_slug(f"effects_{recipe.study}"),
        title=recipe.title or f"{recipe.study}: effects",
        headers=headers,
        labels=3 if several else 2,
        rows=tuple(rows),
        columns=COLUMNS,
        numbers=tuple(numbers),
        notes=(
            *explain_measurement(frame, recipe, cells),
            *dict.fromkeys(notes),
            *([f"Failed runs: {failed}. Effects are estimated without them."] if failed else []),
            *(f"Without a result: {gap}." for gap in list_missing_seeds(cells)),
        ),
    )


@dataclass(frozen=True)
class StudyFactorial:
    """The factorial of a study's cells by one metric; `fit` is None if no two cells differ.

    level: at which its intervals hold together.
    """

    data: Cells
    levels: Levels
    resolution: float
    fit: Fit | None
    level: float = LEVEL

    @property
    def is_full(self) -> bool:
        """Whether it has all combinations of two or more factors with two levels each."""
        counts = [len(names) for names in self.levels.values() if len(names) > 1]
        return len(counts) > 1 and set(counts) == {2} and len(self.data) == 2 ** len(counts)


def fit_study(frame: Frame, cells: DataFrame, metric: str, order: int = 2) -> StudyFactorial:
    """Fit a linear model of main effects and interactions (up to `order` factors) to a study.

    The intervals of all main effects, and that of all on − all off, hold together at the level of
    the verdicts, which look at the same results.
    """
    levels, data = collect_levels(frame, cells), collect_factor_cells(frame, cells, metric)
    resolution = find_resolution(frame, cells, metric)
    family = sum(len(names) > 1 for names in levels.values()) + 1  # intervals that hold together
    study = str(cells["study"].iloc[0])
    sign, level = find_sign(frame, study, metric), find_level(frame, study)
    fit = fit_factorial(
        data,
        order=order,
        levels=levels,
        resolution=resolution,
        family=family,
        sign=sign,
        level=level,
    )
    return StudyFactorial(data, levels, resolution, fit, level)


def _format_term(term: tuple[str, ...]) -> str:
    return " × ".join(map(labels.format_coordinate, term))


def _format_levels(term: tuple[str, ...], levels: Levels) -> str:
    if len(term) > 1:
        return ""
    names = levels[term[0]]
    return " → ".join(names) if len(names) == 2 else f"{len(names)} levels"


def _format_effect(effect: Effect, metric: str, digits: int) -> str:
    """Write `+0.52 [+0.11, +0.93]`, or `range 1.20, best at 0.1` for more than two levels."""
    if effect.estimate is None:
        spread = labels.format_number(effect.spread * display_scale(metric), digits)
        return f"range {spread}, best at {', '.join(effect.best)}"
    return labels.format_with_interval(effect.estimate, effect.low, effect.high, metric, digits)


def _explain_fit(fit: Fit, n_printed: int, metric: str, digits: int) -> list[str]:
    """Return notes on what effects are, how large their error is, and which terms are left out."""
    label, notes = format_metric_label(metric), []
    if fit.flat:
        notes.append(
            f"{label}: no effect. Every cell has the same value at every seed, so that there is no "
            "variation to share out."
        )
    if any(effect.estimate is not None for effect in fit.effects):
        notes.append(
            "Effect: mean at the second level − mean at the first, over the other factors; of an "
            "interaction: half the difference between one factor's effects at the other's levels."
        )
    if any(effect.estimate is None for effect in fit.effects):
        notes.append(
            "Range: largest − smallest fitted mean over the levels; of an interaction: largest − "
            "smallest deviation from the sum of the main effects."
        )
    squares = f"{label}: least squares over {fit.n} values of {fit.cells} cells"
    if fit.sigma is None:
        notes.append(
            f"{squares}; no degrees of freedom for error, so no intervals and no tests: more "
            "seeds give them."
        )
    else:
        source = "cells × seeds" if fit.error == "replicates" else "what the terms leave over"
        if fit.distinct < fit.cells:
            source += f" ({fit.distinct} distinct cells; copies count once)"
        sd = labels.format_number(fit.sigma * display_scale(metric), digits)
        notes.append(
            f"{squares}, seeds as blocks; error from {source}, sd {sd} with {fit.error_df} degrees "
            f"of freedom. p: F test, Holm-corrected over {len(fit.effects)} terms."
        )
    notes.append("Variation: ω², the term's share of the variation between cells without noise.")
    if n_printed < len(fit.effects):
        notes.append(
            f"Not shown: the {len(fit.effects) - n_printed} smallest interactions (CSV: all)."
        )
    if fit.aliased:
        pairs = [
            f"{_format_term(term)} with {', '.join(map(_format_term, mixed)) or 'missing cells'}"
            for term, mixed in fit.aliased.items()
        ]
        notes.append(f"Cannot be told apart in this design: {'; '.join(pairs)}.")
    return notes


def attribute_with_error(factorial: StudyFactorial) -> Attribution | None:
    """Return each component's Shapley value, with intervals from the error of the factorial's fit.

    The second level of a factor means that the component is on. None if no seed has every cell.
    """
    on = {name: names[1] for name, names in factorial.levels.items() if len(names) > 1}
    fit, error = factorial.fit, None
    if fit is not None and fit.sigma is not None:
        error = SharedError(fit.sigma, fit.error_df)
    values_by_components = {  # components that are on → value by seed
        frozenset(name for name in on if levels[name] == on[name]): values
        for levels, values in factorial.data
    }
    resolution, family = factorial.resolution, len(on) + 1
    return attribute_over_seeds(
        values_by_components,
        error,
        resolution=resolution,
        family=family,
        level=factorial.level,
    )


def explain_attribution(
    attribution: Attribution | None, levels: Levels, metric: str, digits: int
) -> str:
    """Write a note on Shapley values: what they are, their sum, and where their error is from."""
    label = format_metric_label(metric)
    if attribution is None:
        return f"Shapley, {label}: none, no seed has every cell."
    has_levels = any(len(names) == 2 and names != ["off", "on"] for names in levels.values())
    total_name = "all on − all off"
    if has_levels:  # some factor has two levels other than off and on
        total_name = "all at their second level − all at their first"
    interval = "Interval: from the error of the effects above."
    if (None, None) in attribution.intervals.values():
        interval = "No error, so no interval: more seeds give one."
    total = labels.format_signed_metric(attribution.total, metric, digits)
    text = (
        f"Shapley, {label}: mean gain of adding a component over all orders; the gains sum to "
        f"{total_name} = {total}. {interval}"
    )
    if attribution.dropped:
        text += f" Left out for missing cells: seed {', '.join(map(str, attribution.dropped))}."
    return text
