"""What a table is before it is written: rows of measured numbers, or a sheet of ready fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reports.published.papers import PrintedValue
from reports.recipe import Table
from reports.stats.comparison_rule import Judgement
from reports.stats.describe import Summary
from reports.stats.paired import Difference, Improvement


@dataclass(frozen=True)
class Field:
    """One printed field: its text, whether it is a number with runs behind it, and its marks.

    of: the (study, cell) of those runs; None: those of the row.
    """

    text: str
    measured: bool = False
    bold: bool = False
    hint: str = ""
    of: tuple[str, str] | None = None


@dataclass(frozen=True)
class Grid:
    """Headers and fields. `further` columns stand in a second table, below the first."""

    headers: tuple[str, ...]
    labels: int
    further: tuple[bool, ...]
    rows: tuple[tuple[Field, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """One row beside the baseline row, both at the seeds that both have.

    difference, permutation and wilcoxon (two-sided p), and dz are paired by seed; delta (Cliff's)
    and improvement are over all pairs of runs. p and p_wilcoxon: Holm-corrected over the family.
    judgement: the verdict, whose interval `difference` has; family: comparisons it corrects over.
    """

    difference: Difference | None
    permutation: float | None
    wilcoxon: float | None
    dz: float | None
    delta: float | None
    improvement: Improvement | None
    p: float | None = None
    p_wilcoxon: float | None = None
    judgement: Judgement | None = None
    family: int = 0


@dataclass(frozen=True)
class MeasuredMetric:
    """One metric of one row, on the scale [0, 1] of the runs.

    half: half the 95 % interval of the mean, as the reality check reports it. better: whether it is
    the primary metric and its verdict is "better"; such numbers are bold.
    """

    summary: Summary | None
    half: float | None = None
    compared: Comparison | None = None
    printed: PrintedValue | None = None
    better: bool = False

    @property
    def difference(self) -> Difference | None:
        return self.compared.difference if self.compared else None

    @property
    def p_corrected(self) -> float | None:
        return self.compared.p if self.compared else None


@dataclass(frozen=True)
class TableRow:
    """One row: the labels on its left, a Measured per metric, and the runs behind them.

    planned: seeds planned; gaps: what is missing and why, one line each. tuning: trials that went
    into the tuning of it, where the sweep says so; tuned: the same as it is shown. against: the
    cell of its baseline row, itself for that one; None where it has none. printed_only: no cell, a
    row that a paper prints.
    """

    cell: str
    labels: tuple[str, ...]
    measured: Mapping[str, MeasuredMetric]
    run_ids: tuple[str, ...]
    planned: int
    gaps: tuple[str, ...] = ()
    baseline: bool = False
    tuning: int | None = None
    tuned: str | None = None
    against: str | None = None
    printed_only: bool = False

    @property
    def n(self) -> int:
        counts = [m.summary.n for m in self.measured.values() if m.summary]
        return max(counts, default=0)


@dataclass(frozen=True)
class TableData:
    """A table of cells, ready to be written."""

    recipe: Table
    key: str
    title: str
    headers: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.recipe.metrics


@dataclass(frozen=True)
class Sheet:
    """A table of its own shape: effects of factors, importances of parameters, promotions.

    labels: how many columns are words. numbers: the rows unrounded, for CSV, under `columns`.
    """

    recipe: Table
    key: str
    title: str
    headers: tuple[str, ...]
    labels: int
    rows: tuple[tuple[Field, ...], ...]
    columns: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = field(default=())


AnyTable = TableData | Sheet
