"""Compare cells with a baseline cell: components, variants, settings.

If a neutral cell was the best of a method's tuning, its row equals the plain loss; the best other
cell follows as a row whose name ends in `OTHER`. A combination that no trial can have has a row
without numbers, and a row that a paper prints has printed numbers only.

Differences between data sets say nothing about methods. If a study has several data sets, each has
its own baseline row: the cell that equals the baseline in all factors except those that name the
data set. `within` in a recipe does the same for other factors.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reports import papers
from reports.frame import OTHER, DataFrame, Frame
from reports.papers import PrintedValue
from reports.recipe import PrintedRows, Table, to_level_name
from reports.stats import paired
from reports.stats.blocks import Blocks, align_blocks
from reports.stats.comparison_rule import (
    Judgement,
    Sample,
    decide,
    join_intervals,
    judge,
    load_rule,
)
from reports.stats.describe import half_width, summarize
from reports.stats.paired import Difference
from reports.stats.wider_claims import (
    OverSearches,
    build_class_rule,
    find_originals_of,
)
from reports.tables import notes, term_shares
from reports.tables.cells import (
    NEUTRAL,
    collect_class_values,
    count_as_worst,
    count_classes,
    count_searches,
    explain_measurement,
    find_failures,
    find_level,
    find_resolution,
    find_sign,
    find_smallest,
    find_unit,
    group_by_cell,
    group_by_search,
    list_missing_seeds,
    run_ids,
)
from reports.tables.labels import format_level, is_baseline, to_slug
from reports.tables.model import Comparison, MeasuredMetric, TableData, TableRow
from trainables.words.errors import ReportError

Levels = Mapping[str, Any]  # factor → level
Values = Mapping[str, Mapping[int, float]]  # cell → seed → value
ON, OFF = "✓", "–"
LEAST_RUNS = 5  # of either side, for a chance of being better to say anything


def compare_cells(frame: Frame, recipe: Table, cells: DataFrame) -> TableData:
    """Return a table with a row per cell: its metrics, and differences to the baseline by seed."""
    recipe = put_primary_first(frame, recipe)
    groups: dict[str, DataFrame] = dict(iter(cells.groupby("cell", sort=False)))
    coords = {
        cell: {k: to_level_name(v) for k, v in group["coords"].iloc[0].items() if k != NEUTRAL}
        for cell, group in groups.items()
    }

    # rows, and the baseline of each
    order = _order_rows(recipe, coords)
    headers = _choose_headers(recipe, cells, coords)
    baseline = _find_baseline(recipe, coords, order)
    data_sets = map_cells_to_data(frame.trials, cells)
    against = find_baselines(data_sets, coords, baseline, recipe.within)

    # values, comparisons and printed numbers
    tuning = frame.get_plan_note("tuning", recipe.study) or {}
    unit = find_unit(cells)
    planned = {cell: groups[cell][unit].nunique() for cell in order}
    failed = find_failures(cells).groupby(cells["cell"]).sum().to_dict()
    values: dict[str, Values] = {}
    comparisons: dict[str, Mapping[str, Comparison]] = {}
    for metric in recipe.metrics:
        shared: dict[str, Any] = {"against": against, "planned": planned, "failed": failed}
        values[metric], comparisons[metric] = _compare_rows(frame, recipe, metric, cells, **shared)
        if any(failed.values()) and frame.recipe.failed == "worst":
            sign = find_sign(frame, recipe.study, metric)
            complete = count_as_worst(cells, metric, sign, against)
            finished = comparisons[metric]
            values[metric], worst = _compare_rows(frame, recipe, metric, complete, **shared)
            comparisons[metric] = {
                cell: _join_comparisons(
                    worst[cell], finished[cell], find_smallest(frame, metric), sign
                )
                for cell in worst
            }
    at_same_rates = _compare_at_same_rates(frame, recipe, cells)
    neutral = {
        cell: describe_neutral(groups[cell], groups[cell + OTHER])
        for cell in order
        if cell + OTHER in groups
    }
    table_rows: list[TableRow] = []
    for cell in order:
        group, base = groups[cell], against.get(cell)
        measured = {}
        for metric in recipe.metrics:
            seed_values = list(values[metric][cell].values())
            comparison = comparisons[metric].get(cell)
            judgement = comparison.judgement if comparison else None
            is_better = judgement is not None and judgement.call == "better"
            measured[metric] = MeasuredMetric(
                summarize(seed_values),
                half=half_width(seed_values),
                compared=comparison,
                printed=_find_printed_value(recipe, metric, cell, coords[cell]),
                same_rates=at_same_rates.get((metric, cell)),
                better=is_better and metric == recipe.metrics[0],  # by the primary metric alone
            )
        levels = _label_row(recipe, headers, cell, coords[cell])
        column = find_method_column(recipe, headers)
        name = levels[column]
        # where tuning chose to switch a method off (neutral), a second row, whose name ends in
        # OTHER, has the best cell with the method on
        if cell in neutral:
            name = f"{name} ({neutral[cell]})"
        elif cell.endswith(OTHER):
            name = f"{name.removesuffix(OTHER)}{OTHER}"
        # the regime (training length, data, …) of the tuning, if the cell trains in another one
        if regime := (frame.get_plan_note("other_regimes", recipe.study) or {}).get(cell):
            name = f"{name} ({regime})"
        table_rows.append(
            TableRow(
                cell,
                labels=(*levels[:column], name, *levels[column + 1 :]),
                measured=measured,
                run_ids=run_ids(group),
                planned=planned[cell],
                runs=len(group),
                failed=failed[cell],
                gaps=list_missing_seeds(group),
                tuning=tuning.get(cell),
                tuned=notes.format_budget(frame, recipe.study, cell),
                against=base,
                gain=_find_gain(recipe, cell, coords[cell]),
                levels=levels,
                shares=term_shares.collect_term_shares(frame, run_ids(group)),
            )
        )
    nothing = dict.fromkeys(recipe.metrics, MeasuredMetric(None))
    refused_rows = []
    for refused in frame.get_plan_note("refused", recipe.study) or []:
        labels = _label_row(recipe, headers, refused["cell"], refused["coords"])
        refused_rows.append(TableRow(refused["cell"], labels, nothing, (), 0))
    printed_rows = build_printed_rows(recipe, headers, table_rows)
    return TableData(
        recipe,
        key=to_slug(f"table_{recipe.study}"),
        title=recipe.title or recipe.study,
        headers=headers,
        unit=unit,
        classes=count_classes(frame, cells, recipe.metrics),
        rows=(*table_rows, *refused_rows, *printed_rows),
        notes=(
            *explain_measurement(frame, recipe, cells),
            *notes.explain_comparison(frame, recipe, table_rows),
            *notes.explain_published(frame, recipe, table_rows),
            *([notes.SAME_RATES] if any(at_same_rates.values()) else []),
            *explain_rows(frame, recipe, table_rows, data=data_sets, neutral=neutral),
            *([term_shares.NOTE] if any(row.shares for row in table_rows) else []),
            *(f"Without a result: {gap}." for row in table_rows for gap in row.gaps),
        ),
    )


def _compare_at_same_rates(
    frame: Frame, recipe: Table, cells: DataFrame
) -> dict[tuple[str, str], Difference | None]:
    """Return (metric, cell) → its difference to the plain loss at its own settings, if planned.

    Rows that have the plain loss themselves are left out.
    """
    study = frame.get_plan_note("same_rates", recipe.study)
    if study is None:
        return {}
    names = dict(zip(cells["idx"], cells["cell"], strict=True))
    plain = frame.select_study(study)  # its cells are in the order of the comparison's
    plain = plain.assign(cell=plain["idx"].map(names).fillna(""))
    trials, plain_trials = (each.groupby("cell")["trial_id"].agg(set) for each in (cells, plain))
    differences: dict[tuple[str, str], Difference | None] = {}
    for metric in recipe.metrics:
        values, plain_values = group_by_cell(cells, metric), group_by_cell(plain, metric)
        for cell in values:
            # a second row whose plain loss repeats that of the first row is not in `plain`
            twin = cell if cell in plain_values else cell.removesuffix(OTHER)
            if twin in plain_values and plain_trials[twin] != trials[cell]:
                difference = paired.paired_difference(values[cell], plain_values[twin])
                differences[metric, cell] = difference
    return differences


def put_primary_first(frame: Frame, recipe: Table) -> Table:
    """Return a table's recipe with the metric that decides verdicts first.

    That metric is `report.primary`, by default the study's objective on the test split. A table
    that lacks it takes the same metric of another split, else its own first metric.
    """
    objective, _ = frame.get_objective(recipe.study)
    primary = frame.recipe.primary or f"test/{objective.rpartition('/')[2]}"
    if primary not in recipe.metrics:
        name = f"/{primary.rpartition('/')[2]}"
        same_name = (metric for metric in recipe.metrics if metric.endswith(name))
        primary = next(same_name, recipe.metrics[0])
    others = (metric for metric in recipe.metrics if metric != primary)
    return recipe.model_copy(update={"metrics": (primary, *others)})


def _compare_rows(
    frame: Frame,
    recipe: Table,
    metric: str,
    cells: DataFrame,
    *,
    against: Mapping[str, str],
    planned: Mapping[str, int],
    failed: Mapping[str, int],
) -> tuple[Values, dict[str, Comparison]]:
    """Return the cells' values, and cell → its comparison with its baseline cell, with the verdict.

    Cells with one baseline (`against`) are a family, over which intervals and p are corrected; in
    a table with a matrix all cells are one family. Verdicts are withheld from cells that a race
    dropped (fewer seeds are `planned`), that were tuned on classes which some splits test, or that
    were tuned, or their baseline was, in another regime (training length, data, …). Cells with
    `failed` runs, or whose baseline has some, are open, unless these count as the worst.
    """
    values = group_by_cell(cells, metric)
    declared = frame.get_declared_study(recipe.study)
    verdict_seeds = max(planned.values(), default=0) if declared.get("race") else 0
    searches, rule = group_by_search(cells, metric), load_rule(frame.recipe.rule)
    by_class = collect_class_values(frame, cells, metric) if recipe.blocks == "classes" else {}
    resolution = find_resolution(frame, cells, metric)
    sign, has_blocks = find_sign(frame, recipe.study, metric), find_unit(cells) == "split"
    groups: dict[str, list[str]] = {}  # baseline → cells compared with it
    for cell in planned:
        if against.get(cell, cell) != cell:
            groups.setdefault(against[cell], []).append(cell)

    # the rows to judge, and how many of them are comparisons: copies of other rows are none
    samples, by_search = dict[str, Sample](), dict[str, list[Sample]]()
    originals, counts = dict[str, dict[str, str]](), dict[str, int]()
    for base, members in groups.items():
        rows = {
            cell: align_blocks(values[base], values[cell])
            for cell in members
            if planned[cell] >= verdict_seeds  # a race did not drop the cell
        }
        sample = samples[base] = Sample(
            values[base],
            rows,
            declared.get("first_stage"),
            planned=max(planned.values()),
            level=find_level(frame, recipe.study),
        )
        by_search[base] = _build_search_samples(searches, values, base, [*rows])
        originals[base] = find_originals_of(by_search[base] or [sample], base, resolution)
        distinct = (cell for cell in rows if originals[base][cell] == cell)
        counts[base] = sum(bool(sample.list_common_blocks(cell)) for cell in distinct)

    # verdicts and corrected p, family by family
    is_withheld = frame.should_withhold_verdicts(recipe.study) or declared.get("splits_seen")
    other_regimes = frame.get_plan_note("other_regimes", recipe.study) or {}
    families = [[*groups]] if recipe.matrix is not None else [[base] for base in groups]
    comparisons: dict[str, Comparison] = {}
    for family in families:
        size = sum(counts[base] for base in family)
        judgements: dict[str, Judgement] = {}
        for base in family:
            over_classes = build_class_rule(by_class, samples[base], base) if by_class else None
            over_searches = None
            if by_search[base]:
                over_searches = OverSearches(over_classes or rule, by_search[base])
            judged = judge(
                over_searches or over_classes or rule,
                replace(samples[base], others=size - counts[base]),
                smallest=find_smallest(frame, metric),
                resolution=resolution,
                lower_is_better=sign < 0,
                baseline=base,
                originals=originals[base],
            )
            judgements |= judged
            for cell in groups[base]:
                comparison = _compare_values(
                    values[cell], values[base], sign=sign, has_blocks=has_blocks
                )
                judgement = judged.get(cell)
                has_failed = bool(failed[cell] or failed[base])
                is_open = frame.recipe.failed is None and has_failed
                if judgement is not None and judgement.call is not None and is_open:
                    judgement = replace(judgement, call="open", small=False)
                if judgement is not None:
                    sd = None
                    if over_searches and judgement.interval:
                        sd = over_searches.compute_sd(cell)
                    chances = _compute_row_chances(
                        samples[base].compute_differences(cell),
                        find_smallest(frame, metric),
                        lower_is_better=sign < 0,
                        error=over_classes.compute_error(cell) if over_classes else None,
                        search_error=(sd / len(searches) ** 0.5, len(searches) - 1) if sd else None,
                    )
                    is_shown = not is_withheld and not {cell, base} & other_regimes.keys()
                    comparison = replace(
                        comparison,
                        difference=judgement.interval or comparison.difference,
                        judgement=judgement if is_shown else None,
                        # runs seldom fail at random, so that those left give no chances
                        chances=chances if is_shown and judgement.call and not has_failed else None,
                        family=size,
                        level=samples[base].level,
                        classes=len(over_classes.queries) if over_classes else 0,
                        class_variances=over_classes.estimate_variances(cell)
                        if over_classes
                        else None,
                        searches=len(searches) or 1,
                        searches_sd=sd,
                    )
                comparisons[cell] = comparison
        tested = [cell for cell, judgement in judgements.items() if judgement.call]
        permutation = paired.adjust_by_holm([comparisons[cell].permutation for cell in tested])
        for cell, p in zip(tested, permutation, strict=True):
            comparisons[cell] = replace(comparisons[cell], p=p)
    return values, comparisons


def _join_comparisons(
    worst: Comparison, finished: Comparison, smallest: float, sign: int
) -> Comparison:
    """Return a comparison with failed runs as the worst, whose verdict also holds without them."""
    judgements = [worst.judgement, finished.judgement]
    if worst.difference is None or any(each is None or each.call is None for each in judgements):
        return worst
    without = finished.difference or Difference(0.0, None, None, 0, "")
    interval = join_intervals(worst.difference, without)
    judgement = decide(interval, smallest, lower_is_better=sign < 0)
    return replace(worst, difference=interval, judgement=judgement)


def _compute_row_chances(
    differences: np.ndarray,
    smallest: float,
    *,
    lower_is_better: bool,
    error: tuple[float, int] | None,
    search_error: tuple[float, int] | None,
) -> tuple[float, float, float] | None:
    """Return `compute_chances` of differences; None for fewer than two blocks.

    Args:
        error: standard error and degrees of freedom, if they are not those of the differences.
        search_error: those of the scatter of searches, which the error then contains.
    """
    n = len(differences)
    if n < 2:
        return None
    size, df = error or (float(differences.std(ddof=1)) / n**0.5, n - 1)
    if search_error is not None:
        size, df = math.hypot(size, search_error[0]), min(df, search_error[1])
    mean = float(differences.mean())
    return paired.compute_chances(mean, size, df, smallest, lower_is_better=lower_is_better)


def _build_search_samples(
    searches: Sequence[Values], values: Values, base: str, cells: Sequence[str]
) -> list[Sample]:
    """Return the values of each search at the blocks that all searches have, as in `values`."""

    def restrict(search: Values, cell: str) -> Blocks:
        return {block: search[cell][block] for block in values[cell]}

    return [
        Sample(
            restrict(search, base),
            {cell: align_blocks(values[base], restrict(search, cell)) for cell in cells},
        )
        for search in searches
    ]


def _compare_values(values: Blocks, base: Blocks, *, sign: int, has_blocks: bool) -> Comparison:
    """Return a row's paired difference to its baseline, uncorrected p values and effect sizes.

    With `has_blocks`, values are of splits, and Cliff's delta and P(better) compare within each.
    """
    differences = list(paired.paired_differences(values, base))
    row_values, base_values = list(values.values()), list(base.values())
    has_enough = min(len(row_values), len(base_values)) >= LEAST_RUNS
    if has_blocks:
        row_values, base_values = differences, [0.0]  # a single value gives no bootstrap interval
    sides = (base_values, row_values) if sign < 0 else (row_values, base_values)
    improvement = paired.probability_of_improvement(*sides) if has_enough else None
    return Comparison(
        paired.paired_difference(values, base),
        permutation=paired.permutation_p(differences),
        dz=paired.cohens_dz(differences),
        delta=paired.cliffs_delta(row_values, base_values),
        improvement=improvement,
    )


def _order_rows(recipe: Table, coords: Mapping[str, Levels]) -> list[str]:
    """Return the cells in the order of the rows.

    A cell `<name>, not neutral` follows the cell `<name>`. Cells of a components table are in the
    order in which a paper prints them, the others after them by how many components are on.
    """
    names = [cell for cell in coords if not cell.endswith(OTHER)]
    order = [cell for name in names for cell in (name, name + OTHER) if cell in coords]
    if recipe.kind != "components":
        return order
    printed = papers.load_published_table(recipe.published.table).rows if recipe.published else ()
    position = {_sort_levels(row.coords): i for i, row in enumerate(printed) if row.coords}

    def build_sort_key(cell: str) -> tuple[int, int]:
        levels = coords[cell]
        number_on = sum(level == "on" for level in levels.values())
        return position.get(_sort_levels(levels), len(printed)), number_on

    return sorted(order, key=build_sort_key)


def _choose_headers(
    recipe: Table, cells: DataFrame, coords: Mapping[str, Levels]
) -> tuple[str, ...]:
    """Return the headers of label columns: components, `variant`, several factors, or `cell`."""
    if recipe.kind == "components":
        names: list[str] = list(cells["coords"].iloc[0]) if len(cells) else []
        first = str(cells["cell"].iloc[0]) if len(cells) else ""
        # a cell's name lists its components in the study's order
        in_study_order = sorted(names, key=lambda name: (first.find(f"{name}="), name))
        return recipe.components or tuple(in_study_order)
    factors_of_cells = {tuple(levels) for levels in coords.values()}
    factors = next(iter(factors_of_cells)) if len(factors_of_cells) == 1 else ()
    return factors if factors == ("variant",) or len(factors) > 1 else ("cell",)


def find_method_column(recipe: Table, headers: Sequence[str]) -> int:
    """Return the position of the label that names the method: the baseline's factor, or the first.

    A factor in `within` does not, since each method is compared at all its levels.
    """
    factors = recipe.baseline if isinstance(recipe.baseline, dict) else headers
    candidates = [i for i, name in enumerate(headers) if name not in recipe.within]
    methods = [i for i in candidates if headers[i] in factors]
    return (methods or candidates or [0])[0]


def _label_row(
    recipe: Table, headers: tuple[str, ...], cell: str, coords: Levels
) -> tuple[str, ...]:
    """Return a row's labels: ✓ or – for each component, levels of factors, or the cell's name."""
    if recipe.kind == "components":
        return tuple(ON if coords.get(name) == "on" else OFF for name in headers)
    if headers == ("cell",):
        return (cell,)
    return tuple(format_level(coords[name]) for name in headers)


def _sort_levels(coords: Levels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in coords.items()))


def _find_baseline(recipe: Table, coords: Mapping[str, Levels], order: list[str]) -> str:
    """Return the cell that the recipe names, else all components off, or the first cell."""
    if not order:
        return ""
    cell = next((cell for cell in order if is_baseline(recipe, cell, coords[cell])), None)
    if cell is None:
        raise ReportError(
            f"report: the `baseline` of the table on {recipe.study} is {recipe.baseline!r}, which "
            f"is no cell of this study. Name one of {', '.join(order)}."
        )
    return cell


def _find_gain(recipe: Table, cell: str, levels: Levels) -> PrintedRows | None:
    """Return the printed gain that a recipe names for a cell or one of its levels, or None."""
    names = (cell.removesuffix(OTHER), *map(str, levels.values()))
    return next((recipe.gains[name] for name in names if name in recipe.gains), None)


def _find_printed_value(
    recipe: Table, metric: str, cell: str, coords: Levels
) -> PrintedValue | None:
    """Return the number that the published table prints for a cell, by row name or by levels."""
    column = recipe.find_published_column(metric)
    if recipe.published is None or column is None:
        return None
    table = papers.load_published_table(recipe.published.table)
    variant = str(coords.get("variant"))
    name = recipe.published.find_row(cell, metric) or recipe.published.find_row(variant, metric)
    row = table.get_row(name) if name else table.find_row_at(coords)
    return None if row is None else table.get_printed_value(row, column)


def build_printed_rows(
    recipe: Table, headers: Sequence[str], rows: Sequence[TableRow]
) -> list[TableRow]:
    """Return the rows that only a paper has, if the recipe's `published.others` asks for them."""
    published = recipe.published
    if published is None or not published.others:
        return []
    table = papers.load_published_table(published.table)
    printed_rows = table.rows
    if published.others is not True:
        printed_rows = tuple(table.find_rows_like(published.others))
    results = (result.printed for row in rows for result in row.measured.values())
    shown_beside_cells = {printed.row for printed in results if printed is not None}
    more = []
    for row in printed_rows:
        measured = {}
        for metric in recipe.metrics:
            column = recipe.find_published_column(metric)
            printed = table.get_printed_value(row, column) if column else None
            measured[metric] = MeasuredMetric(None, printed=printed)
        has_number = any(result.printed for result in measured.values())
        if has_number and row.name not in shown_beside_cells:
            labels = (f"{row.name} (published only)", *[""] * (len(headers) - 1))
            more.append(TableRow(row.name, labels, measured, (), 0, printed_only=True))
    return more


def map_cells_to_data(trials: DataFrame, cells: DataFrame) -> dict[str, str]:
    """Return cell → fingerprint (or name) of its data set; cells without runs are left out."""
    columns = (trials["run_id"], trials["tags"], trials["params"])
    data_of_run = {
        run: tags.get("ablate.data_fingerprint") or params.get("data.name")
        for run, tags, params in zip(*columns, strict=True)
    }
    runs = zip(cells["cell"], cells["run_id"], strict=True)
    return {cell: str(data_of_run[run]) for cell, run in runs if data_of_run.get(run)}


def find_baselines(
    data: Mapping[str, str],
    coords: Mapping[str, Mapping[str, Any]],
    baseline: str,
    within: Sequence[str] = (),
) -> dict[str, str]:
    """Return cell → the cell it is compared with; cells without such a cell are left out.

    A cell is compared with the table's `baseline`, or with the cell on the same data set and with
    the same levels of the factors in `within` that equals `baseline` in all other factors.

    Args:
        data: cell → key of its data set.
        coords: cell → coordinates.
    """
    has_several = len(set(data.values())) > 1  # data sets
    if not has_several and not within:
        return dict.fromkeys(coords, baseline)

    # groups of cells on one data set, with equal levels of the factors in `within`
    cells = [cell for cell in coords if cell in data or not has_several]  # others have no result
    data_of = {cell: data[cell] if has_several else "" for cell in cells}
    groups: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        levels = (format_level(coords[cell].get(name)) for name in within)
        groups.setdefault((data_of[cell], *levels), []).append(cell)

    def is_factor(name: str) -> bool:
        """Return False for a coordinate that only names the data set, a different name for each."""
        pairs = {(data_of[cell], format_level(coords[cell].get(name))) for cell in cells}
        data_set_count, level_count = len({*data_of.values()}), len({level for _, level in pairs})
        # True if some data set has several levels, or several data sets have the same level
        return len(pairs) > data_set_count or level_count < data_set_count

    # the baseline of each group equals the table's baseline in all factors
    names = {name for coordinates in coords.values() for name in coordinates} - {*within}
    factors = [name for name in names if is_factor(name)]

    def get_levels(cell: str) -> list[str]:
        return [format_level(coords[cell].get(name)) for name in factors]

    baselines: dict[str, str] = {}
    for group in groups.values():
        equal = [cell for cell in group if get_levels(cell) == get_levels(baseline)]
        if equal:
            baselines |= dict.fromkeys(group, baseline if baseline in group else equal[0])
    return baselines


def describe_neutral(cells: DataFrame, others: DataFrame) -> str:
    """Say that tuning switched a row's method off, or in how many of several searches it did.

    Args:
        cells: the row's cells. others: those of its second row, in which the method is on.
    """
    trials, on = (rows.groupby("study")["trial_id"].agg(set) for rows in (cells, others))
    number = sum(trials.get(study) != ids for study, ids in on.items())
    count = count_searches(cells)
    return "switched off by tuning" + (
        f" in {number} of {count} searches" if number < count else ""
    )


def explain_rows(
    frame: Frame,
    recipe: Table,
    rows: Sequence[TableRow],
    *,
    data: Mapping[str, str],
    neutral: Mapping[str, str],
) -> list[str]:
    """Return notes on which rows are compared, which were refused, and which are neutral.

    Args:
        data: row that needs a baseline → its data set.
        neutral: row whose best configuration switches the method off → this fact in words.
    """
    notes = []
    if recipe.within:
        notes.append(f"Differences are taken at the same {' and '.join(recipe.within)}.")
    if (count := len(set(data.values()))) > 1:
        notes.append(f"Rows are on {count} data sets: differences are taken within each of them.")
    if alone := [row.cell for row in rows if row.cell in data and row.against is None]:
        notes.append(f"No baseline to compare with: {', '.join(alone)}.")
    by_words: dict[str, list[str]] = {}
    for cell, words in neutral.items():
        by_words.setdefault(words, []).append(cell)
    notes += [
        f"{', '.join(cells)}: {words}. {'In these searches no' if 'searches' in words else 'No'} "
        "configuration was better in validation than the plain loss at the best learning rates of "
        f"the baseline; “{OTHER.removeprefix(', ')}”: the best other one."
        for words, cells in by_words.items()
    ]
    by_reason: dict[str, list[str]] = {}
    for refused in frame.get_plan_note("refused", recipe.study) or []:
        by_reason.setdefault(refused["reason"].rstrip("."), []).append(refused["cell"])
    return notes + [f"Refused: {'; '.join(names)}: {text}." for text, names in by_reason.items()]
