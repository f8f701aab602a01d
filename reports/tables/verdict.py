"""Collect the verdict on each comparison: better, worse, no difference above δ, or open.

A compare table is judged row by row, a table of components by the terms of its factorial (main
effects, and all on − all off). The interval printed with a verdict is the one that decides it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from reports.frame import Frame
from reports.stats.blocks import are_equal, dunnett_quantile
from reports.stats.comparison_rule import decide
from reports.stats.factorial import Fit, fit_factorial
from reports.stats.paired import Difference
from reports.tables.cells import Cells, Levels, collect_factor_cells, collect_levels
from reports.tables.judging import find_resolution, find_smallest
from reports.tables.labels import format_coordinate, is_lower_better
from reports.tables.model import AnyTable, MeasuredMetric, TableData, TableRow

Call = Literal["better", "worse", "no difference", "open", "same", "no result"]
CALLS: tuple[Call, ...] = get_args(Call)
ON = "✓"
TOTAL = "all on − all off"


@dataclass(frozen=True)
class PrintedGain:
    """A gain that a paper prints, on the scale of the runs, and whether the interval contains
    it."""

    metric: str
    value: float
    inside: bool


@dataclass(frozen=True)
class Verdict:
    """One comparison by the deciding metric of its table.

    Attributes:
        title, key: of the table.
        cell: of the row, or name of the term (`is_term`).
        label, baseline: both names for readers.
        difference: paired, on the scale of the runs.
        n: number of common seeds, or splits (`unit`).
        small: whether the whole interval lies inside ±δ.
        same_as: the row that this one equals.
        smallest: δ, on the scale of the runs.
        family: number of comparisons of the correction.
        tuned: the tuning in words.
        printed: the gain that a paper prints.
    """

    title: str
    key: str
    study: str
    metric: str
    digits: int
    cell: str
    label: str
    baseline: str
    call: Call
    difference: Difference | None
    n: int
    small: bool = False
    same_as: str = ""
    smallest: float = 0.0
    family: int = 0
    tuned: str = ""
    printed: PrintedGain | None = None
    is_term: bool = False
    unit: Literal["seed", "split"] = "seed"


def judge_tables(frame: Frame, tables: Sequence[AnyTable]) -> list[Verdict]:
    """Return the verdicts of all tables with comparisons; tables of tuned variants come first."""
    compared = [table for table in tables if isinstance(table, TableData)]
    compared.sort(key=lambda table: table.recipe.kind != "compare")
    verdicts: list[Verdict] = []
    for table in compared:
        if frame.get_declared_study(table.recipe.study).get("splits_seen"):
            continue  # tuned on classes that some splits test
        terms = judge_terms(frame, table) if table.recipe.kind == "components" else []
        verdicts += terms or _judge_rows(frame, table)
    return verdicts


def group_verdicts(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Group comparisons by table and baseline; decided ones come first in each group."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.key, verdict.baseline), []).append(verdict)
    return [sorted(group, key=lambda item: CALLS.index(item.call)) for group in groups.values()]


def summarize_verdicts(frame: Frame, verdicts: Sequence[Verdict]) -> str:
    """Summarize the report in one sentence."""
    done = int((frame.cells["status"] == "done").sum())
    if not done:
        trials = frame.cells["trial_id"].nunique()
        return f"Nothing has finished: 0 of {trials} trials, so there is no verdict yet."
    if not verdicts:
        return "No table sets cells beside a baseline, so there is no comparison to judge."
    if controls := summarize_controls(verdicts):
        return controls
    counts = Counter(verdict.call for verdict in verdicts)
    questions = len(verdicts) - counts["same"]
    names = {"no difference": "no difference above δ", "same": "the same as another row"}
    parts = [
        f"{counts[call]} {names.get(call, call)}"
        for call in CALLS
        if counts[call] or call in ("better", "worse")
    ]
    plural = "" if questions == 1 else "s"
    return f"Of {questions} question{plural}: {', '.join(parts)}."


def summarize_controls(verdicts: Sequence[Verdict]) -> str:
    """Say how many known effects were found and how many nulls were called different.

    Rows named `known: …` are losses that must be found, and rows named `null: …` must not differ.
    The text is empty without controls.
    """
    rows = [verdict for verdict in verdicts if not verdict.is_term]
    effects, null = (
        [v for v in rows if v.label.startswith(prefix)] for prefix in ("known: ", "null: ")
    )
    if not effects and not null:
        return ""
    different = ("better", "worse")
    n_found = sum(verdict.call == "worse" for verdict in effects)
    wrong = sum(verdict.call in different for verdict in null)
    missed = [v.label for v in effects if v.call != "worse"]
    missed += [v.label for v in null if v.call in different]
    text = (
        f"Controls: {n_found} of {len(effects)} known effects found, {wrong} of {len(null)} nulls "
        "called different."
    )
    return f"{text} Not as they should be: {', '.join(missed)}." if missed else text


def _judge_rows(frame: Frame, table: TableData) -> list[Verdict]:
    """Judge each row with a baseline.

    Rows that a race dropped, and rows tuned in another regime than their own, have no verdict here.
    """
    rows = {row.cell: row for row in table.rows}
    raced = bool(frame.get_declared_study(table.recipe.study).get("race"))
    full = max((row.planned for row in table.rows), default=0)
    elsewhere = frame.get_plan_note("other_regimes", table.recipe.study) or {}
    judged = [row for row in table.rows if row.against in rows and not row.baseline]
    return [
        _judge_row(frame, table, row, rows)
        for row in judged
        if not (raced and row.planned < full) and not {row.cell, row.against} & elsewhere.keys()
    ]


def _judge_row(frame: Frame, table: TableData, row: TableRow, rows: dict[str, TableRow]) -> Verdict:
    metric = table.metrics[0]
    base = rows[row.against or ""]
    comparison = row.measured[metric].compared
    gap = comparison.difference if comparison else None
    judgement = comparison.judgement if comparison else None
    other = rows.get(judgement.same_as or "") if judgement else None
    return Verdict(
        title=table.title,
        key=table.key,
        study=table.recipe.study,
        metric=metric,
        digits=table.recipe.digits,
        cell=row.cell,
        label=describe_row(table, row),
        baseline=describe_row(table, base),
        call=judge_metric(row.measured[metric], base.measured[metric]),
        difference=gap,
        n=gap.n if gap else 0,
        small=bool(judgement and judgement.small),
        same_as=describe_row(table, other) if other else "",
        smallest=find_smallest(frame, metric),
        family=comparison.family if comparison else 0,
        tuned=_describe_tuning(table, row, base),
        printed=_compare_with_print(table, row, base),
        unit=_find_unit(frame, table),
    )


def _find_unit(frame: Frame, table: TableData) -> Literal["seed", "split"]:
    splits = frame.get_declared_study(table.recipe.study).get("splits")
    return "seed" if splits is None else "split"


def judge_metric(result: MeasuredMetric, base: MeasuredMetric) -> Call:
    """Return the verdict on one metric of a row."""
    judgement = result.compared.judgement if result.compared else None
    if result.summary is None or base.summary is None:
        return "no result"
    if judgement is None:
        return "open"
    return judgement.call or "same"


def _compare_with_print(table: TableData, row: TableRow, base: TableRow) -> PrintedGain | None:
    """Return the gain that a paper prints for a row, by the first metric with both numbers."""
    for metric in table.metrics:
        row_metric, other = row.measured[metric], base.measured[metric]
        gap = row_metric.difference
        if (
            row_metric.printed
            and other.printed
            and gap
            and gap.low is not None
            and gap.high is not None
        ):
            value = (row_metric.printed.value - other.printed.value) / row_metric.printed.scale
            return PrintedGain(metric, value, gap.low <= value <= gap.high)
    return None


# ------------------------------------------------------------------------- terms of a factorial


def judge_terms(frame: Frame, table: TableData) -> list[Verdict]:
    """Judge the components of a table by the terms of their factorial.

    Main effects are contrasts of all cells, so they detect smaller differences than single rows.
    Their intervals, and that of all on − all off, hold together with 95 %.

    Returns: The verdicts; empty if the cells give no error estimate, and then rows are judged one
        by one.
    """
    recipe = table.recipe
    metric = table.metrics[0]
    cells = frame.select_study(recipe.study)
    data, levels = collect_factor_cells(frame, cells, metric), collect_levels(frame, cells)
    varied = [name for name, factor_levels in levels.items() if len(factor_levels) > 1]
    if any(len(levels[name]) > 2 for name in varied):
        return []
    family, resolution = len(varied) + 1, find_resolution(cells, metric)
    fit = fit_factorial(data, order=2, levels=levels, resolution=resolution, family=family)
    if fit is None or fit.flat or any(effect.low is None for effect in fit.effects):
        return []
    seeds = max(len(values) for _, values in data)
    gaps = {
        format_coordinate(effect.term[0]): Difference(
            effect.estimate, effect.low, effect.high, seeds, "factorial"
        )
        for effect in fit.effects
        if len(effect.term) == 1 and effect.estimate is not None
    }
    total = _compute_total(data, levels, varied, fit, family)
    if total is not None:
        gaps[TOTAL] = total
    smallest, lower = find_smallest(frame, metric), is_lower_better(metric)
    verdicts = []
    for name, effect_gap in gaps.items():
        gap = effect_gap
        judgement = decide(gap, smallest, lower_is_better=lower)
        if same := _has_no_effect(name, data, levels, resolution):
            gap = Difference(0.0, None, None, gap.n, "same")
        verdicts.append(
            Verdict(
                title=table.title,
                key=table.key,
                study=recipe.study,
                metric=metric,
                digits=recipe.digits,
                cell=name,
                label=name if name == TOTAL else f"{name}, main effect",
                baseline="off",
                call="same" if same else judgement.call or "open",
                difference=gap,
                n=gap.n,
                small=judgement.small,
                same_as="off" if same else "",
                smallest=smallest,
                family=len(gaps),
                is_term=True,
                unit=_find_unit(frame, table),
            )
        )
    return verdicts


def _has_no_effect(name: str, data: Cells, levels: Levels, resolution: float) -> bool:
    """Return whether a component changes no value of any cell."""
    if name == TOTAL:
        return False
    paths = [path for path in levels if format_coordinate(path) == name]
    by_others: dict[tuple[tuple[str, str], ...], list[dict[int, float]]] = {}
    for coords, values in data:
        others = tuple(sorted(item for item in coords.items() if item[0] not in paths))
        by_others.setdefault(others, []).append(values)
    pairs = [pair for pair in by_others.values() if len(pair) == 2]
    return bool(pairs) and all(are_equal(a, b, resolution) for a, b in pairs)


def _compute_total(
    data: Cells, levels: Levels, varied: Sequence[str], fit: Fit, family: int
) -> Difference | None:
    """Return all on − all off, with its interval from the factorial's error."""
    ends = []
    for side in (0, -1):
        wanted = {name: levels[name][side] for name in varied}
        matching = [values for coords, values in data if wanted.items() <= coords.items()]
        ends.append(matching[0] if matching else {})
    common = ends[0].keys() & ends[1].keys()
    if not common or fit.sigma is None:
        return None
    mean = sum(ends[1][seed] - ends[0][seed] for seed in common) / len(common)
    half = dunnett_quantile(family, fit.error_df, 0.0) * fit.sigma * (2 / len(common)) ** 0.5
    return Difference(mean, mean - half, mean + half, len(common), "factorial")


# ----------------------------------------------------------------------------------- words


def describe_row(table: TableData, row: TableRow) -> str:
    """Return the name of a row: the components that are on, a variant, or its levels."""
    if table.recipe.kind == "components":
        on = [name for name, mark in zip(table.headers, row.labels, strict=True) if mark == ON]
        return " + ".join(on) or "none"
    if len(table.headers) == 1:
        return row.labels[0]
    named = zip(table.headers, row.labels, strict=True)
    return ", ".join(f"{name.rsplit('.', 1)[-1]} {value}" for name, value in named)


def _describe_tuning(table: TableData, row: TableRow, base: TableRow) -> str:
    """Describe the tuning in words; empty for components, whose cells share their base."""
    if row.tuned is None:
        return "" if table.recipe.kind == "components" else "tuning not recorded"
    if "published" in row.tuned:
        return row.tuned
    row_tuning = f"tuned with {row.tuned} trials" if row.tuning else "not tuned"
    return (
        row_tuning
        if row.tuning == base.tuning
        else f"{row_tuning}, the baseline with {base.tuned or '?'}"
    )
