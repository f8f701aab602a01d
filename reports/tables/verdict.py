"""Collect the verdict on each comparison: better, worse, no difference above δ, or open.

A compare table is judged row by row, a table of components by the terms of its factorial (main
effects, and all on − all off). The interval printed with a verdict is the one that decides it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from reports.frame import DataFrame, Frame
from reports.papers import compute_printed_gain, load_published_table
from reports.stats.blocks import LEVEL, are_equal, dunnett_quantile
from reports.stats.comparison_rule import Judgement, decide, join_intervals
from reports.stats.factorial import Fit
from reports.stats.paired import Difference, compute_chances
from reports.stats.planning import Family
from reports.tables.advice import (
    advise_on_classes,
    advise_on_row,
    advise_on_term,
    choose_components,
    describe_search_part,
    group_runs,
)
from reports.tables.cells import (
    Cells,
    Levels,
    count_as_worst,
    describe_failures,
    describe_look,
    find_failures,
    find_level,
    find_sign,
    find_smallest,
)
from reports.tables.comparison import ON, find_method_column
from reports.tables.effects import fit_study
from reports.tables.labels import format_confidence, format_coordinate
from reports.tables.model import AnyTable, TableData, TableRow
from reports.tables.term_shares import judge_terms_of_row
from trainables.words.metrics import HALF_WIDTH, display_scale

Call = Literal["better", "worse", "no difference", "open", "same", "no result"]
CALLS: tuple[Call, ...] = get_args(Call)
DECIDED = ("better", "worse")
REGIMES = {"frozen": "frozen backbone", "finetune": "whole network"}
TOTAL = "all on − all off"
NOT_COMPARED = "No table sets cells beside a baseline, so there is no comparison to judge."
WITHHELD = (
    "Rows beside a baseline have no verdict: they were tuned on classes that some splits test or "
    "in another regime, or a race dropped them."
)


@dataclass(frozen=True)
class PrintedGain:
    """A gain that a paper prints, on the scale of the runs, beside the measured difference.

    Attributes:
        metric: of both. measured: the row's difference in this metric.
        data: the paper's data set. is_same_data: whether the row was measured on it; only then can
            gain and interval be compared.
    """

    metric: str
    value: float
    measured: Difference
    data: str = ""
    is_same_data: bool = False


@dataclass(frozen=True)
class Verdict:
    """One comparison by the deciding metric of its table.

    Attributes:
        title, key: of the table. cell: of the row, or name of the term (`is_term`).
        label, baseline: both names for readers.
        name, rival: of the row and its baseline without the settings that both have in common.
        settings: these, in words: what of the network trains, levels of crossed factors.
        data: the data set.
        difference: paired, on the scale of the runs, over n common seeds or splits (`unit`).
        small: whether the whole interval lies inside ±δ (`smallest`).
        same_as: the row that this one equals.
        family: number of comparisons of the correction. in_matrix: whether these are all
            comparisons of the table, and not only those with the same baseline.
        tuned: the tuning in words. printed: the gain that a paper prints.
        level: of the family's intervals.
        look: the number of the look, in words, if there are several.
        failed: how many runs of the row and its baseline failed, in words; empty if none did.
        chances: that the true difference is worse than −δ, within ±δ, and better than δ.
        advice: what would shorten the interval of an open verdict, and to what; empty if unknown.
        own: half of the row's own interval, on the scale of the runs, if the scatter of other rows
            lengthens it much. lengthened_by: the names of these rows; empty if most rows do.
        terms: what the gradients of the row's terms say about it, if they say anything.
        classes: number of classes over which the interval holds, besides seeds; 0 if over none.
        searches, searches_sd: number of searches over which values are means, and the standard
            deviation of the difference between them, on the scale of the runs.
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
    in_matrix: bool = False
    tuned: str = ""
    printed: PrintedGain | None = None
    is_term: bool = False
    unit: Literal["seed", "split"] = "seed"
    classes: int = 0
    searches: int = 1
    searches_sd: float | None = None
    terms: str = ""
    failed: str = ""
    level: float = LEVEL
    look: str = ""
    chances: tuple[float, float, float] | None = None
    name: str = ""
    rival: str = ""
    settings: tuple[str, ...] = ()
    data: str = ""
    advice: str = ""
    own: float | None = None
    lengthened_by: str = ""


def judge_tables(frame: Frame, tables: Sequence[AnyTable]) -> list[Verdict]:
    """Return the verdicts of all tables with comparisons; tables of kind `compare` come first."""
    compared = [table for table in tables if isinstance(table, TableData)]
    compared.sort(key=lambda table: table.recipe.kind != "compare")
    verdicts: list[Verdict] = []
    for table in compared:
        if frame.get_declared_study(table.recipe.study).get("splits_seen"):
            continue  # no verdict: it was tuned on classes that some splits test
        if frame.should_withhold_verdicts(table.recipe.study):
            continue
        terms = judge_terms(frame, table) if table.recipe.kind == "components" else []
        verdicts += terms or _judge_rows(frame, table)
    return verdicts


def summarize_verdicts(
    frame: Frame, verdicts: Sequence[Verdict], tables: Sequence[AnyTable] = ()
) -> str:
    """Say why `tables` have no verdict, or how controls came out; empty where rows answer."""
    if not (frame.cells["status"] == "done").any():
        trials = frame.cells["trial_id"].nunique()
        return f"Nothing has finished: 0 of {trials} trials, so there is no verdict yet."
    if not verdicts and frame.progress and frame.find_incomplete_studies():
        return "There is no verdict before all trials of a study have ended."
    if not verdicts:
        rows = [row for table in tables if isinstance(table, TableData) for row in table.rows]
        has_baseline = any(row.against not in (None, row.cell) for row in rows)
        return WITHHELD if has_baseline else NOT_COMPARED
    return _summarize_controls(verdicts)


def _summarize_controls(verdicts: Sequence[Verdict]) -> str:
    """Say how many controls came out as they should; empty without controls.

    Controls are rows that test a comparison itself: rows named `known: …` must be called worse than
    the baseline, and rows named `null: …` must not be called different from it.
    """
    rows = [verdict for verdict in verdicts if not verdict.is_term]
    effects = [verdict for verdict in rows if verdict.label.startswith("known: ")]
    nulls = [verdict for verdict in rows if verdict.label.startswith("null: ")]
    if not effects and not nulls:
        return ""
    missed = [verdict.label for verdict in effects if verdict.call != "worse"]
    wrong = [verdict.label for verdict in nulls if verdict.call in DECIDED]
    text = (
        f"Controls: {len(effects) - len(missed)} of {len(effects)} known effects found, "
        f"{len(wrong)} of {len(nulls)} nulls called different."
    )
    if missed or wrong:
        text += f" Not as they should be: {', '.join(missed + wrong)}."
    return text


def _collect_shared_fields(frame: Frame, table: TableData) -> dict[str, Any]:
    """Return the arguments of `Verdict` that are equal for all verdicts of a table."""
    metric, study = table.metrics[0], table.recipe.study
    return {
        **{"title": table.title, "key": table.key, "study": study, "metric": metric},
        **{"digits": table.recipe.digits, "smallest": find_smallest(frame, metric)},
        **{"unit": table.unit, "level": find_level(frame, study)},
        "look": describe_look(frame, study),
    }


def _judge_rows(frame: Frame, table: TableData) -> list[Verdict]:
    """Return the verdict on each row that has a baseline row, unless it is withheld."""
    shared, metric = _collect_shared_fields(frame, table), table.metrics[0]
    rows = {row.cell: row for row in table.rows}
    verdicts = []
    for row in table.rows:
        comparison, base = row.measured[metric].compared, rows.get(row.against or "")
        if base is None or comparison is None or comparison.judgement is None:
            continue
        judgement, gap = comparison.judgement, comparison.difference
        same_row = rows.get(judgement.same_as or "")
        has_results = row.measured[metric].summary and base.measured[metric].summary
        verdicts.append(
            Verdict(
                **shared,
                cell=row.cell,
                label=_describe_row(table, row),
                baseline=_describe_row(table, base),
                **_describe_setting(frame, table, row, base),
                call=(judgement.call or "same") if has_results else "no result",
                difference=gap,
                n=gap.n if gap else 0,
                small=judgement.small,
                same_as=_describe_row(table, same_row) if same_row else "",
                family=comparison.family,
                in_matrix=table.recipe.matrix is not None,
                tuned=_describe_tuning(table, row, base),
                printed=_compare_with_print(frame, table, row, base),
                classes=comparison.classes,
                searches=comparison.searches,
                searches_sd=comparison.searches_sd,
                chances=comparison.chances,
                terms=judge_terms_of_row(row.shares, base.shares),
                failed=_describe_failures(frame, row, base),
                own=judgement.own,
                lengthened_by=" and ".join(
                    _describe_setting(frame, table, rows[cell], base).get("name")
                    or _describe_row(table, rows[cell])
                    for cell in judgement.lengthened_by
                ),
            )
        )
    return _add_advice(frame, table, verdicts)


def _add_advice(frame: Frame, table: TableData, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Add to open verdicts with long intervals what would shorten them."""
    long = [find_long_half(verdict) is not None for verdict in verdicts]
    if not any(long):
        return [*verdicts]
    metric, rule, rows = table.metrics[0], frame.recipe.rule, {row.cell: row for row in table.rows}
    level = find_level(frame, table.recipe.study, later=1)  # of the look at the further seeds
    scale, runs = display_scale(metric), group_runs(frame.select_study(table.recipe.study), metric)
    advised = []
    for verdict, is_long in zip(verdicts, long, strict=True):
        cell, wanted, advice = verdict.cell, HALF_WIDTH * verdict.smallest, ""
        base, comparison = rows[cell].against or "", rows[cell].measured[metric].compared
        if is_long and verdict.searches > 1:
            advice = describe_search_part(
                verdict.searches, verdict.searches_sd or 0.0, level, scale
            )
        elif is_long and verdict.classes:
            if variances := comparison.class_variances if comparison else None:
                family = Family(rule, verdict.family, level=level)
                advice = advise_on_classes(variances, family, wanted, scale)
        elif is_long:
            alike = [v.cell for v in verdicts if v.call != "same" and rows[v.cell].against == base]
            others = [runs[other] for other in alike if other in runs and other != cell]
            n_elsewhere = max(0, verdict.family - 1 - len(others))  # with other baselines
            family = Family(rule, 1 + len(others), n_elsewhere, level)
            if components := choose_components(runs[base], runs[cell], others, rule):
                has_splits = verdict.unit == "split"
                advice = advise_on_row(components, family, wanted, scale, has_splits=has_splits)
        advised.append(replace(verdict, advice=_add_level(advice, level, verdict)))
    return advised


def _add_level(advice: str, level: float, verdict: Verdict) -> str:
    """Add to an advice the level of the next look, which it is about, unless it is the verdict's.

    Whoever follows the advice looks again, so that the intervals have that level.
    """
    if not advice or level == verdict.level:
        return advice
    return f"{advice} (at the level of a further look, {format_confidence(level)})"


def find_long_half(verdict: Verdict) -> float | None:
    """Return half the interval of an open verdict if it is δ or longer, else None."""
    gap = verdict.difference
    if verdict.call != "open" or gap is None or gap.low is None or gap.high is None:
        return None
    half = (gap.high - gap.low) / 2
    return half if 0 < verdict.smallest <= half else None


def _describe_row(table: TableData, row: TableRow) -> str:
    """Return the name of a row: the components that are on, a variant, or its levels."""
    labels = list(zip(table.headers, row.labels, strict=True))
    if table.recipe.kind == "components":
        return " + ".join(name for name, mark in labels if mark == ON) or "none"
    if len(labels) == 1:
        return row.labels[0]
    return ", ".join(f"{name.rsplit('.', 1)[-1]} {value}" for name, value in labels)


def _describe_failures(frame: Frame, row: TableRow, base: TableRow) -> str:
    """Say how many runs of a row and of its baseline failed; empty if none did."""
    parts = [describe_failures(row.failed, row.runs)]
    parts.append(describe_failures(base.failed, base.runs).replace("runs", "runs of the baseline"))
    text = " and ".join(filter(None, parts))
    return f"{text}: left out or the worst" if text and frame.recipe.failed else text


def _describe_setting(
    frame: Frame, table: TableData, row: TableRow, base: TableRow | None = None
) -> dict[str, Any]:
    """Return `Verdict.name`, `rival`, `settings` and `data` of a row and its baseline."""
    trials = frame.trials[frame.trials["run_id"].isin(row.run_ids)]["params"]
    modes = dict.fromkeys(params.get("backbone.mode", "") for params in trials)
    sets = dict.fromkeys(params.get("data.name", "") for params in trials)
    facts: dict[str, Any] = {"data": ", ".join(filter(None, sets))}
    settings = [REGIMES.get(mode, f"backbone {mode}") for mode in modes if mode]
    if base is not None and table.recipe.kind != "components":
        column = find_method_column(table.recipe, table.headers)
        (name, others), (rival, rival_others) = (
            (levels[column], [*levels[:column], *levels[column + 1 :]])
            for levels in (row.levels, base.levels)
        )
        if others == rival_others:
            facts |= {"name": name, "rival": rival}
            settings += others
    return {**facts, "settings": tuple(settings)}


def _describe_tuning(table: TableData, row: TableRow, base: TableRow) -> str:
    """Say how many trials tuned a row and its baseline; empty for a method's components."""
    if row.tuned is None:  # `tuned` writes the number of trials, `tuning`, in words
        return "" if table.recipe.kind == "components" else "tuning not recorded"
    if "published" in row.tuned:
        return row.tuned
    text = f"tuned with {row.tuned} trials" if row.tuning else "not tuned"
    if row.tuning != base.tuning:
        text += f", the baseline with {base.tuned or '?'}"
    return text


def _compare_with_print(
    frame: Frame, table: TableData, row: TableRow, base: TableRow
) -> PrintedGain | None:
    """Set the gain that a paper prints for a row beside the row's difference in the same metric.

    The gain is the one that the recipe names for the row in `gains`; else that of the first metric
    which has printed numbers of both rows. None without any, or without an interval.
    """
    recipe = table.recipe
    for metric in [row.gain.metric] if row.gain else table.metrics:
        printed, base_printed = row.measured[metric].printed, base.measured[metric].printed
        gap = row.measured[metric].difference
        if gap is None or gap.low is None or gap.high is None:
            continue
        if row.gain is not None:
            gain, source, column = compute_printed_gain(row.gain), row.gain.table, row.gain.column
        elif recipe.published is not None and printed and base_printed:
            gain = (printed.value - base_printed.value) / printed.scale
            source, column = recipe.published.table, recipe.find_published_column(metric) or ""
        else:
            continue
        name, title = load_published_table(source).find_data_set(column)
        measured_on = _describe_setting(frame, table, row)["data"]
        return PrintedGain(metric, gain, gap, title, bool(name) and name == measured_on)
    return None


def judge_terms(frame: Frame, table: TableData) -> list[Verdict]:
    """Judge components by their main effects, and by the difference all on − all off.

    A main effect is estimated from all cells, so it shows smaller differences than a single row.
    All these intervals hold together. The list is empty where a factor has more than two
    levels or the cells give no error estimate; rows are then judged one by one. With failed runs
    all terms are open, or hold both without these runs and with the worst value for them.
    """
    metric, cells = table.metrics[0], frame.select_study(table.recipe.study)
    sign, failures = find_sign(frame, table.recipe.study, metric), find_failures(cells)
    level = find_level(frame, table.recipe.study)
    terms, error_df = _estimate_terms(frame, cells, metric, level)
    if terms and failures.any() and frame.recipe.failed:
        worst, _ = _estimate_terms(frame, count_as_worst(cells, metric, sign), metric, level)
        unknown = _Term(Difference(0.0, None, None, 0, ""))
        terms = {
            name: _Term(join_intervals(worst.get(name, unknown).gap, term.gap))
            for name, term in terms.items()
        }
    is_open = frame.recipe.failed is None and failures.any()
    shared = _collect_shared_fields(frame, table)
    shared |= _describe_setting(frame, table, table.rows[0])
    verdicts = []
    for name, (gap, error, same) in terms.items():
        judgement = decide(gap, shared["smallest"], lower_is_better=sign < 0)
        judgement = Judgement(gap, "open") if is_open else judgement
        chances = None
        if error is not None and not same and not failures.any():
            chances = compute_chances(
                gap.mean, error, error_df, shared["smallest"], lower_is_better=sign < 0
            )
        verdict = Verdict(
            **shared,
            cell=name,
            label=name if name == TOTAL else f"{name}, main effect",
            baseline="off",
            call="same" if same else judgement.call or "open",
            difference=Difference(gap.mean, None, None, gap.n, "same") if same else gap,
            n=gap.n,
            small=judgement.small,
            same_as="off" if same else "",
            family=len(terms),
            is_term=True,
            failed=describe_failures(int(failures.sum()), len(cells)),
            chances=chances,
        )
        half = find_long_half(verdict)
        if half is not None and verdict.unit == "seed":
            wanted, later = HALF_WIDTH * verdict.smallest, find_level(frame, verdict.study, later=1)
            half *= dunnett_quantile(len(terms), error_df, 0.0, later)
            half /= dunnett_quantile(len(terms), error_df, 0.0, level)
            advice = advise_on_term(half, gap.n, error_df, wanted, display_scale(metric))
            verdict = replace(verdict, advice=_add_level(advice, later, verdict))
        verdicts.append(verdict)
    return verdicts


class _Term(NamedTuple):
    """The difference that a component makes.

    Attributes:
        error: its standard error; None if failed runs are judged both ways.
        is_inert: whether the component changes nothing at any seed.
    """

    gap: Difference
    error: float | None = None
    is_inert: bool = False


def _estimate_terms(
    frame: Frame, cells: DataFrame, metric: str, level: float
) -> tuple[dict[str, _Term], int]:
    """Return the differences of components and of all on − all off, and the error's df.

    There are none where components cannot be judged (`judge_terms`).
    """
    factorial = fit_study(frame, cells, metric)
    data, fit = factorial.data, factorial.fit
    varied = {name: names for name, names in factorial.levels.items() if len(names) > 1}
    if any(len(names) > 2 for names in varied.values()):
        return {}, 0
    if fit is None or fit.flat or any(effect.low is None for effect in fit.effects):
        return {}, 0

    # differences by component, and of all on − all off; a component may change nothing
    seeds = max(len(values) for _, values in data)
    terms: dict[str, _Term] = {}
    for effect in fit.effects:
        if len(effect.term) == 1 and effect.estimate is not None:
            (factor,) = effect.term
            gap = Difference(effect.estimate, effect.low, effect.high, seeds, "factorial")
            is_inert = _has_no_effect(factor, data, factorial.resolution)
            terms[format_coordinate(factor)] = _Term(gap, effect.se or 0.0, is_inert)
    total = _compute_total(data, varied, fit, level)
    if total is not None:
        terms[TOTAL] = _Term(total, (fit.sigma or 0.0) * (2 / total.n) ** 0.5)
    return terms, fit.error_df


def _has_no_effect(factor: str, data: Cells, resolution: float) -> bool:
    """Return whether any two cells that differ in `factor` alone have equal values at each seed."""
    groups: dict[frozenset[tuple[str, str]], list[dict[int, float]]] = {}
    for coords, values in data:
        other_levels = frozenset(item for item in coords.items() if item[0] != factor)
        groups.setdefault(other_levels, []).append(values)
    pairs = [pair for pair in groups.values() if len(pair) == 2]
    return bool(pairs) and all(are_equal(a, b, resolution) for a, b in pairs)


def _compute_total(data: Cells, varied: Levels, fit: Fit, level: float) -> Difference | None:
    """Return all on − all off with an interval from the fit's error; None without common seeds."""
    corners: list[dict[int, float]] = []  # values by seed with all components off, and all on
    for end in (0, -1):  # the first level and the last
        settings = {name: levels[end] for name, levels in varied.items()}
        matching = (values for coords, values in data if settings.items() <= coords.items())
        corners.append(next(matching, {}))
    all_off, all_on = corners
    common = all_off.keys() & all_on.keys()
    if not common or fit.sigma is None:
        return None
    mean = sum(all_on[seed] - all_off[seed] for seed in common) / len(common)
    quantile = dunnett_quantile(len(varied) + 1, fit.error_df, 0.0, level)
    half_width = quantile * fit.sigma * (2 / len(common)) ** 0.5
    return Difference(mean, mean - half_width, mean + half_width, len(common), "factorial")
