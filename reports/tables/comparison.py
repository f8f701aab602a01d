"""Compare cells with a baseline cell: components, variants, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reports.errors import ReportError
from reports.frame import Frame
from reports.published import papers
from reports.published.papers import PrintedValue
from reports.recipe import Table, to_level_name
from reports.stats import paired
from reports.stats.comparison_rule import count_comparisons
from reports.stats.describe import half_width, summarize
from reports.tables import judging, notes, rows
from reports.tables.cells import (
    EMPTY,
    NEUTRAL,
    explain_folds,
    explain_protocol,
    explain_race,
    find_protocol,
    group_by_cell,
    has_splits,
    list_missing_seeds,
    run_ids,
)
from reports.tables.labels import format_level, is_lower_better, to_slug
from reports.tables.model import Comparison, MeasuredMetric, TableData, TableRow

if TYPE_CHECKING:
    import pandas as pd

ON, OFF = "✓", "–"
LEAST_RUNS = 5  # of either side, for a chance of being better to say anything


def compared(frame: Frame, recipe: Table, cells: pd.DataFrame) -> TableData:
    """Return each cell's metrics and its difference to the baseline cell, paired by seed.

    Example:
        >>> Table(kind="compare", study="terms", metrics=("test/map_at_r",)).digits
        2
    """
    recipe = judging.put_primary_first(frame, recipe)
    order = rows.order_rows(dict.fromkeys(cells["cell"]))
    groups = dict(iter(cells.groupby("cell", sort=False)))
    coords = {
        cell: {k: to_level_name(v) for k, v in group["coords"].iloc[0].items() if k != NEUTRAL}
        for cell, group in groups.items()
    }
    if recipe.kind == "components":
        # The paper's order where it prints these rows, else by how many are on (the plan's).
        printed = _order_as_printed(recipe)
        order.sort(
            key=lambda c: (
                printed.get(_build_level_key(coords[c]), len(printed)),
                _count_components_on(coords[c]),
            )
        )
    headers = _choose_headers(recipe, cells, coords)
    baseline = _find_baseline(recipe, coords, order)
    tuned = notes.read_tuning(frame, recipe.study)
    data = rows.map_cells_to_data(frame.trials, cells)
    against = rows.find_baselines(data, coords, baseline, recipe.within)
    every = {metric: group_by_cell(cells, metric) for metric in recipe.metrics}
    table_rows: list[TableRow] = []
    for cell in order:
        group, base = groups[cell], against.get(cell)
        measured = {}
        for metric in recipe.metrics:
            by_seed = every[metric][cell]
            values = list(by_seed.values())
            comparison = None
            if base not in (cell, None):
                comparison = _compare_values(metric, by_seed, every[metric].get(base, {}))
            printed_value = _find_printed_value(recipe, metric, cell, coords[cell])
            measured[metric] = MeasuredMetric(
                summarize(values), half_width(values), comparison, printed_value
            )
        labels = rows.mark_neutral(_label_row(recipe, headers, cell, coords[cell]), cell, order)
        if words := (frame.get_plan_note("other_regimes", recipe.study) or {}).get(cell):
            labels = (f"{labels[0]} ({words})", *labels[1:])
        table_rows.append(
            TableRow(
                cell,
                labels,
                measured,
                run_ids(group),
                group["split" if has_splits(group) else "seed"].nunique(),
                list_missing_seeds(group),
                cell == base,
                tuned.trials.get(cell),
                tuned.format_budget(cell),
                base,
            )
        )
    table_rows = _judge_rows(frame, recipe, table_rows, cells, every)
    refused = rows.build_refused_rows(
        frame, recipe, lambda c, group: _label_row(recipe, headers, c, group)
    )
    return TableData(
        recipe,
        to_slug(f"table_{recipe.study}"),
        recipe.title or recipe.study,
        headers,
        (*table_rows, *refused, *rows.build_printed_rows(recipe, headers, table_rows)),
        (
            *rows.explain_baselines(data, against, recipe),
            *_build_table_notes(frame, recipe, table_rows, tuned),
            *rows.explain_neutral_rows(order),
            *explain_folds(cells, recipe.metrics),
            *rows.explain_refused_rows(frame, recipe.study),
        ),
    )


def _compare_values(
    metric: str, values: Mapping[int, float], base: Mapping[int, float]
) -> Comparison:
    differences = list(paired.paired_differences(values, base))
    row_values, base_values = list(values.values()), list(base.values())
    return Comparison(
        paired.paired_difference(values, base),
        paired.permutation_p(differences),
        paired.wilcoxon_p(differences),
        paired.cohens_dz(differences),
        paired.cliffs_delta(row_values, base_values),
        None
        if min(len(row_values), len(base_values)) < LEAST_RUNS
        else paired.probability_of_improvement(
            *((base_values, row_values) if is_lower_better(metric) else (row_values, base_values))
        ),
    )


def _choose_headers(
    recipe: Table, cells: pd.DataFrame, coords: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the columns of labels: components in the recipe's or the study's order, crossed
    factors, or one column with the cells' names.
    """
    if recipe.kind == "components":
        coordinate_names: list[str] = list(cells["coords"].iloc[0]) if len(cells) else []
        first = str(cells["cell"].iloc[0]) if len(cells) else ""
        return recipe.components or tuple(
            sorted(coordinate_names, key=lambda name: (first.find(f"{name}="), name))
        )
    shapes = {tuple(keys) for keys in coords.values()}
    names = next(iter(shapes)) if len(shapes) == 1 else ()
    if names == ("variant",) or len(names) > 1:
        return names
    return ("cell",)


def _label_row(
    recipe: Table, headers: tuple[str, ...], cell: str, coords: Mapping[str, Any]
) -> tuple[str, ...]:
    if recipe.kind == "components":
        return tuple(ON if coords.get(name) == "on" else OFF for name in headers)
    if headers == ("cell",):
        return (cell,)
    return tuple(format_level(coords[name]) for name in headers)


def _build_level_key(coords: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in coords.items()))


def _count_components_on(coords: Mapping[str, Any]) -> int:
    return sum(value == "on" for value in coords.values())


def _order_as_printed(recipe: Table) -> dict[tuple[tuple[str, str], ...], int]:
    if recipe.published is None:
        return {}
    rows = papers.load_published_table(recipe.published.table).rows
    return {_build_level_key(row.coords): i for i, row in enumerate(rows) if row.coords}


def _find_baseline(recipe: Table, coords: Mapping[str, Mapping[str, Any]], order: list[str]) -> str:
    wanted = recipe.baseline
    for cell in order:
        coordinates = coords[cell]
        if isinstance(wanted, dict):
            if all(
                format_level(coordinates.get(key)) == format_level(value)
                for key, value in wanted.items()
            ):
                return cell
        elif wanted is not None:
            if wanted in (cell, coordinates.get("variant")):
                return cell
        elif recipe.kind == "compare" or _count_components_on(coordinates) == 0:
            return cell
    if not order:
        return ""
    subject = f"report: baseline {wanted!r} of the table on {recipe.study}"
    raise ReportError(f"{subject} names no cell. The cells are {', '.join(order)}.")


def _find_printed_value(
    recipe: Table, metric: str, cell: str, coords: Mapping[str, Any]
) -> PrintedValue | None:
    column = recipe.find_published_column(metric)
    if recipe.published is None or column is None:
        return None
    table = papers.load_published_table(recipe.published.table)
    names = (
        recipe.published.find_row(row_name, metric)
        for row_name in (cell, str(coords.get("variant")))
    )
    name = next(filter(None, names), None)
    row = table.get_row(name) if name else table.find_row_at(coords)
    return None if row is None else table.get_printed_value(row, column)


def _judge_rows(
    frame: Frame,
    recipe: Table,
    table_rows: list[TableRow],
    cells: pd.DataFrame,
    every: Mapping[str, Mapping[str, Mapping[int, float]]],
) -> list[TableRow]:
    """Return the rows with intervals, verdicts and corrected p, family by family."""
    measured: list[dict[str, MeasuredMetric]] = [dict(row.measured) for row in table_rows]
    families: dict[str, list[int]] = {}
    first_stage = frame.get_declared_study(recipe.study).get("first_stage")
    full = max((row.planned for row in table_rows), default=0)
    raced = bool(frame.get_declared_study(recipe.study).get("race"))
    for i, row in enumerate(table_rows):
        dropped = raced and row.planned < full
        if row.against is not None and not row.baseline and not dropped:
            families.setdefault(row.against, []).append(i)
    for metric, values in every.items():
        resolution = judging.find_resolution(cells, metric)
        for base, members in families.items():
            names = [table_rows[i].cell for i in members]
            rows_of = {name: values[name] for name in names}
            judgements = judging.judge_family(
                frame,
                metric,
                (base, values.get(base, {})),
                rows_of,
                resolution,
                first_stage=first_stage,
            )
            family = count_comparisons([*judgements.values()])
            comparisons = [measured[i][metric].compared for i in members]
            tested = [
                comparison if comparison and judgements[name].call else None
                for name, comparison in zip(names, comparisons, strict=True)
            ]
            p = paired.adjust_by_holm(
                [comparison.permutation if comparison else None for comparison in tested]
            )
            p_wilcoxon = paired.adjust_by_holm(
                [comparison.wilcoxon if comparison else None for comparison in tested]
            )
            for position, i in enumerate(members):
                judgement, comparison_of_row = judgements[names[position]], comparisons[position]
                corrected = comparison_of_row and replace(
                    comparison_of_row,
                    difference=judgement.interval or comparison_of_row.difference,
                    p=p[position],
                    p_wilcoxon=p_wilcoxon[position],
                    judgement=judgement,
                    family=family,
                )
                measured[i][metric] = replace(
                    measured[i][metric],
                    compared=corrected,
                    better=metric == recipe.metrics[0] and judgement.call == "better",
                )
    return [
        replace(row, measured=comparison_of_row)
        for row, comparison_of_row in zip(table_rows, measured, strict=True)
    ]


def _build_table_notes(
    frame: Frame, recipe: Table, table_rows: list[TableRow], tuned: notes.Tuning
) -> list[str]:
    lines = [explain_protocol(frame, recipe.metrics), *explain_race(frame, recipe.study)]
    if recipe.spread == "t95":
        lines.append(
            "±: half the 95 % interval of the mean, t with n − 1 degrees of freedom times sd/√n, "
            "as the reality check's code has it."
        )
    if any(result.better for row in table_rows for result in row.measured.values()):
        lines.append(notes.BOLD)
    lines += notes.explain_differences(frame, recipe, table_rows)
    lines += notes.explain_limits(recipe.metrics, table_rows)
    lines += notes.explain_tuning(tuned, table_rows)
    declared = frame.get_declared_study(recipe.study)
    lines += notes.explain_stages(declared, table_rows)
    if declared.get("splits_seen"):
        lines.append("Tuned on classes that some splits test: no verdict of these rows is shown.")
    if recipe.published is not None:
        table = papers.load_published_table(recipe.published.table)
        columns = sorted(filter(None, {recipe.find_published_column(m) for m in recipe.metrics}))
        lines.append(
            f"Published: {table.source} of “{table.paper}”, {', '.join(columns)}, as printed, "
            f"{table.protocol}; another data set and backbone than measured unless they agree."
        )
        if find_protocol(frame) not in (EMPTY, table.protocol):
            lines.append(
                f"Measured numbers are {find_protocol(frame)} and published ones {table.protocol}: "
                "of the differences between them, some is the protocol's."
            )
        lines += [
            f"Published {result.printed.value:g} is marked: {result.printed.slip}."
            for row in table_rows
            for result in row.measured.values()
            if result.printed is not None and result.printed.slip
        ]
    return lines + [f"Without a result: {gap}." for row in table_rows for gap in row.gaps]
