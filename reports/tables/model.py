"""Define tables before they are written: rows of numbers, or sheets of fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reports.papers import PrintedValue
from reports.recipe import PrintedRows, Table
from reports.stats.blocks import LEVEL
from reports.stats.comparison_rule import Judgement
from reports.stats.describe import Summary
from reports.stats.paired import Difference, Improvement
from reports.stats.wider_claims import ClassVariances
from reports.tables.term_shares import TermShare
from trainables.words.metrics import format_metric_label


@dataclass(frozen=True)
class Field:
    """One printed field.

    Attributes:
        text: what is printed.
        measured: whether it is a number with runs behind it.
        of: the (study, cell) of these runs; None for those of the row.
    """

    text: str
    measured: bool = False
    bold: bool = False
    hint: str = ""
    of: tuple[str, str] | None = None


@dataclass(frozen=True)
class TableGrid:
    """Headers and fields. Columns marked `further` are printed in a second table."""

    headers: tuple[str, ...]
    labels: int
    further: tuple[bool, ...]
    rows: tuple[tuple[Field, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """One row against the baseline row, at their common seeds.

    Attributes:
        difference, permutation, dz: paired by seed (p two-sided).
        delta, improvement: Cliff's delta and P(better), of all pairs of runs, or within splits.
        p: of the permutation test, Holm-corrected over the family.
        judgement: the verdict, whose interval `difference` has.
        chances: see `compute_chances`, of the row's own difference.
        family: number of comparisons of the correction.
        level: at which the intervals of the family hold together.
        classes: number of classes over which the interval holds; 0 if it is over seeds or splits.
        class_variances: the parts of its variance over classes and seeds.
        searches, searches_sd: number of searches over which the values are means, and the standard
            deviation of the row's difference between them.
    """

    difference: Difference | None
    permutation: float | None
    dz: float | None
    delta: float | None
    improvement: Improvement | None
    p: float | None = None
    judgement: Judgement | None = None
    chances: tuple[float, float, float] | None = None
    family: int = 0
    level: float = LEVEL
    classes: int = 0
    class_variances: ClassVariances | None = None
    searches: int = 1
    searches_sd: float | None = None


@dataclass(frozen=True)
class MeasuredMetric:
    """One metric of one row, on the scale of the runs.

    Attributes:
        half: half the 95 % interval of the mean.
        same_rates: the row minus the plain loss at the row's own settings, paired, if planned.
        better: whether it is the primary metric and the verdict is "better"; such numbers are bold.
    """

    summary: Summary | None
    half: float | None = None
    compared: Comparison | None = None
    printed: PrintedValue | None = None
    same_rates: Difference | None = None
    better: bool = False

    @property
    def difference(self) -> Difference | None:
        return self.compared.difference if self.compared else None

    @property
    def p_corrected(self) -> float | None:
        return self.compared.p if self.compared else None


@dataclass(frozen=True)
class TableRow:
    """One row: labels, metrics, and the runs behind them.

    Attributes:
        planned: number of planned seeds.
        runs, failed: number of runs, and of those that failed.
        levels: the labels without the words that may follow the method's name.
        gaps: what is missing and why, a line each.
        tuning: number of trials that tuned it, if known; tuned: the same as text.
        against: cell of its baseline row; its own cell for the baseline; None without one.
        gain: the printed gain with which the verdict compares the row.
        printed_only: a row of a paper without a cell.
        shares: term of the loss → its gradient over the metric term's.
    """

    cell: str
    labels: tuple[str, ...]
    measured: Mapping[str, MeasuredMetric]
    run_ids: tuple[str, ...]
    planned: int
    gaps: tuple[str, ...] = ()
    tuning: int | None = None
    tuned: str | None = None
    against: str | None = None
    gain: PrintedRows | None = None
    printed_only: bool = False
    levels: tuple[str, ...] = ()
    shares: Mapping[str, TermShare] = field(default_factory=dict)
    runs: int = 0
    failed: int = 0

    @property
    def baseline(self) -> bool:
        return self.cell == self.against

    @property
    def n(self) -> int:
        return max((m.summary.n for m in self.measured.values() if m.summary), default=0)


@dataclass(frozen=True)
class TableData:
    """A table of cells, ready to be written.

    Attributes:
        unit: what n counts.
        classes: metric → the number of classes among which each run measured it, if known.
    """

    recipe: Table
    key: str
    title: str
    headers: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    unit: Literal["seed", "split"] = "seed"
    classes: Mapping[str, str] = field(default_factory=dict)

    def format_header(self, metric: str) -> str:
        """Return `MAP@R, test (%), among 20 classes`."""
        count = self.classes.get(metric)
        return format_metric_label(metric) + (f", among {count} classes" if count else "")

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.recipe.metrics


@dataclass(frozen=True)
class Sheet:
    """A table of another shape: effects, importances, promotions.

    Attributes:
        labels: number of columns with words.
        columns, numbers: headers and unrounded rows for CSV.
    """

    recipe: Table
    key: str
    title: str
    headers: tuple[str, ...]
    labels: int
    rows: tuple[tuple[Field, ...], ...]
    columns: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()


AnyTable = TableData | Sheet
