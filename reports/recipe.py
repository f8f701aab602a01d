"""The `report:` section of a sweep's YAML: which tables and figures are made of which studies.

A recipe names studies and metrics; it holds no numbers. The sweep's builder checks it together
with the rest of the YAML (`extra="forbid"`), writes it into the sweep's `sweep.json`, and
`reports.compile.compile_report` reads it from there. This module imports nothing but pydantic, so
that a plan stays quick.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from reports.kinds import TABLES, find_figure_options, list_kinds


class RecipePart(BaseModel):
    """Strict about unknown keys; never changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def to_level_name(value: Any) -> Any:
    """Return `on` and `off` as text: YAML reads the bare words as booleans."""
    return ("off", "on")[value] if isinstance(value, bool) else value


Level = Annotated[Any, AfterValidator(to_level_name)]


class SourceBlock(RecipePart):
    """Where settings of rows and studies come from, as a paper's spec says beside itself.

    studies, rows: patterns of their names (`*` stands for any letters).
    fields: (field, value, source). varied: (field, the values that rows take, source).
    """

    studies: tuple[str, ...]
    rows: tuple[str, ...] = ("*",)
    fields: tuple[tuple[str, Any, str], ...] = ()
    varied: tuple[tuple[str, tuple[Any, ...], str], ...] = ()

    def includes_any(self, studies: Collection[str]) -> bool:
        """Tell whether the block is of any of these studies."""
        return any(fnmatchcase(name, pattern) for name in studies for pattern in self.studies)

    def list_entries(self) -> list[tuple[str, Any, str]]:
        """Return the entries of both kinds."""
        return [*self.fields, *((field, list(values), why) for field, values, why in self.varied)]


class Published(RecipePart):
    """Printed numbers to set beside the measured ones.

    table: `<file>/<table>` of `reports/published/`, e.g. `ddml/table4`.
    column: the printed column, e.g. `CUB/R@1`; for one metric of the table.
    columns: the same for several metrics, `{metric: column}`.
    rows: `{cell: row}`: which printed row stands beside which cell; or `{cell: {metric: row}}`
        where the paper prints several numbers of one cell below each other. A components table
        needs none where the published rows carry the same component coordinates.
    others: patterns (`ViT: *`) of the printed rows that are shown below, as published only, where
        no cell stands for them; true: all.
    """

    table: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9_]+$")
    column: str | None = None
    columns: dict[str, str] = Field({})
    rows: dict[str, str | dict[str, str]] = Field({})
    others: Literal[True] | tuple[str, ...] = ()

    @model_validator(mode="after")
    def check_has_column(self) -> Published:
        if (self.column is None) == (not self.columns):
            raise ValueError("give either `column` or `columns`")
        return self

    def find_row(self, cell: str, metric: str) -> str | None:
        """Return the printed row beside a cell's metric, or None."""
        printed_rows = self.rows.get(cell)
        return printed_rows.get(metric) if isinstance(printed_rows, dict) else printed_rows


if TYPE_CHECKING:
    TableKind = str
    RuleName = str
else:
    TableKind = Literal[(*TABLES, *list_kinds("tables"))]
    RuleName = Literal[tuple(list_kinds("rules"))]


class Table(RecipePart):
    """One table of one study.

    study: by name. title, caption: above it. published: a paper's numbers beside its own.
    kind: `components` (all on/off cells), `promoted` (a promote study's cells beside what they were
        in the study that it is of), `compare` (the cells of any study that lists them, beside a
        baseline), `search` (the best trials), `effects` (main effects, interactions and Shapley
        attribution over the factors of a study that lists its cells) or `importance` (of a search).
    metrics: one or several; `val/…` and `test/…` are read of the selected epoch
        (`final/val/…` in the tracker).
    baseline: the cell that differences are taken to: its name or its coordinates. Default: all
        components off; the first variant. Unused in a search table.
    within: factors of a study that crosses them: each row's baseline is the one at its own levels
        of these, as it is the one on its own data set.
    components: the columns of a components table in the order of the paper; default: as the
        study gives them.
    top: how many trials a search table shows, or interactions an effects table. digits: after the
        point of a percentage. spread: what stands after ±: `sd` over seeds, or `t95`, half the 95 %
        interval of the mean. order: an effects table's interactions are of up to so many factors.
    evaluator: of an importance table. alone: without the effects or importances that follow else.
    """

    kind: TableKind
    study: str
    metrics: tuple[str, ...] = Field(("val/map_at_r",), min_length=1)
    title: str = ""
    caption: str = ""
    baseline: str | dict[str, Level] | None = None
    within: tuple[str, ...] = ()
    published: Published | None = None
    components: tuple[str, ...] = ()
    top: int = Field(10, ge=1)
    digits: int = Field(2, ge=0, le=6)
    spread: Literal["sd", "t95"] = "sd"
    order: int = Field(2, ge=1, le=4)
    evaluator: Literal["ped_anova", "fanova"] = "ped_anova"
    alone: bool = False

    @model_validator(mode="after")
    def check_columns(self) -> Table:
        if self.published is None:
            return self
        named = {"columns": {*self.published.columns}}
        named |= {f"rows.{k}": {*r} for k, r in self.published.rows.items() if isinstance(r, dict)}
        for option, keys in named.items():
            unknown = sorted(keys - set(self.metrics))
            if unknown:
                raise ValueError(f"published.{option} names {unknown[0]}, which is not in metrics")
        if self.published.column is not None and len(self.metrics) > 1:
            raise ValueError("several metrics need `published.columns` ({metric: column})")
        return self

    def find_published_column(self, metric: str) -> str | None:
        """Return the printed column that stands beside `metric`, or None."""
        if self.published is None:
            return None
        return self.published.column or self.published.columns.get(metric)


class Drawing(RecipePart):
    """What all figures have. metric: as in a table. title, caption: above it."""

    metric: str = "val/map_at_r"
    title: str = ""
    caption: str = ""


class Heatmap(Drawing):
    """A metric over two coordinates of a grid study, averaged over seeds.

    study: by name. digits: after the point.
    x, y: coordinates of the study (`method.alpha`); each level is one column or row, in
        ascending order, evenly spaced (so a logarithmic grid looks logarithmic).
    """

    study: str
    x: str
    y: str
    digits: int = Field(2, ge=0, le=6)

    @model_validator(mode="after")
    def check_two_axes(self) -> Heatmap:
        if self.x == self.y:
            raise ValueError(f"x and y are both {self.x}")
        return self


class Curves(Drawing):
    """A metric per epoch, one line per cell, with a band of ± one sd over seeds.

    studies: by name.
    cells: only these cells (default: all; of a search study the best `top`).
    top: so many of a search.
    """

    studies: tuple[str, ...] = Field(min_length=1)
    cells: tuple[str, ...] = ()
    top: int = Field(8, ge=1, le=20)


class FactorCurves(Drawing):
    """A metric against one factor: the mean over seeds at each level, with its 95 % t interval.

    studies: grids, one-factor studies or any other that lists its cells; cells that do not vary
        `x` are left out. Each combination of the other coordinates' levels is its own line; a
        combination seen at one level of `x` only is left out where others have more.
    x: the factor, `method.gamma`.
    at: only cells at these levels of other coordinates, `{method.beta: 0.1}`.
    """

    studies: tuple[str, ...] = Field(min_length=1)
    x: str
    at: dict[str, Level] = Field({})

    @model_validator(mode="before")
    @classmethod
    def refuse_removed_options(cls, options: Any) -> Any:
        for name in {"interval", "log"} & set(options if isinstance(options, dict) else ()):
            raise ValueError(
                f"`{name}` went in 0.2.0: bars are 95 % t intervals, and the levels decide whether "
                "the axis is logarithmic; remove the key"
            )
        return options

    @model_validator(mode="after")
    def check_x_is_free(self) -> FactorCurves:
        if self.x in self.at:
            raise ValueError(f"`at` fixes {self.x}, which is the x axis: remove it from `at`")
        return self


class Figure(Drawing):
    """A figure named by its kind.

    kind: one of `reports/kinds.py`, or another package's (an entry point of `ablate.figures`).
    options: what its kind takes, or its author says it takes.
    studies: by name.
    """

    kind: str
    studies: tuple[str, ...] = Field(min_length=1)
    options: dict[str, Any] = Field({})

    @field_validator("kind", mode="after")
    @classmethod
    def check_installed(cls, kind: str) -> str:
        if kind not in (there := list_kinds("figures")):
            raise ValueError(
                f"a figure, here or in a package that is installed: {', '.join(there)}"
            )
        return kind

    @model_validator(mode="after")
    def check_options(self) -> Figure:
        if (options := find_figure_options(self.kind)) is None:
            return self
        options.model_validate(self.options)
        if len(self.studies) > 1 and not options.several:
            raise ValueError(f"one study for {self.kind}, not {', '.join(self.studies)}")
        return self


Part = Table | Heatmap | Curves | FactorCurves | Figure
SECTIONS = ("tables", "heatmaps", "curves", "factor_curves", "figures")


def list_part_studies(part: Part) -> tuple[str, ...]:
    """Return the studies that a part of a recipe names."""
    return (part.study,) if isinstance(part, Table | Heatmap) else part.studies


class Recipe(RecipePart):
    """The whole `report:` section.

    primary: the metric that decides each table that has it; default: the objective's, on the test
        split. Other metrics are shown beside it and decide nothing.
    smallest: δ, the smallest effect of interest, by metric (`map_at_r: 0.3`), in the unit in which
        it is shown. Default: 0.3 points of MAP@R and its kin, 0.5 of other percentages.
    rule: how rows are compared with their baseline, by name (`dunnett_and_t`, `holm_t`,
        `permutation`, or one of an installed package).
    best: studies whose best configuration is written as YAML (default: all).
    sources: where settings come from; in a file the name of the one that says it.
    """

    tables: tuple[Table, ...] = ()
    heatmaps: tuple[Heatmap, ...] = ()
    curves: tuple[Curves, ...] = ()
    factor_curves: tuple[FactorCurves, ...] = ()
    figures: tuple[Figure, ...] = ()
    primary: str | None = None
    smallest: dict[str, Annotated[float, Field(gt=0)]] = Field({})
    rule: RuleName = "dunnett_and_t"
    best: tuple[str, ...] = ()
    sources: tuple[SourceBlock, ...] = ()

    @model_validator(mode="after")
    def check_metrics(self) -> Recipe:
        """Refuse a primary metric, or a smallest effect, of a metric that no table has."""
        metrics = {metric for table in self.tables for metric in table.metrics}
        if self.primary is not None and self.primary not in metrics:
            raise ValueError(
                f"no table has the primary metric {self.primary}; they have "
                f"{', '.join(sorted(metrics)) or 'none'}"
            )
        names = {metric.rpartition("/")[2] for metric in metrics}
        if unknown := sorted(set(self.smallest) - names):
            raise ValueError(
                f"no table has the metric {unknown[0]} of smallest; they have "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        return self

    def map_studies_to_paths(self) -> dict[str, str]:
        """Return every study named, with the place that names it first:
        `{study: "report.tables.0.study"}`."""
        places: dict[str, str] = {}
        for section in SECTIONS:
            for i, part in enumerate(getattr(self, section)):
                for j, study in enumerate(list_part_studies(part)):
                    end = "study" if isinstance(part, Table | Heatmap) else f"studies.{j}"
                    places.setdefault(study, f"report.{section}.{i}.{end}")
        for i, study in enumerate(self.best):
            places.setdefault(study, f"report.best.{i}")
        return places

    def restrict_to_studies(self, studies: Collection[str]) -> Recipe:
        """Return what can be made of these studies alone: a table, figure or configuration of none
        of them is left out, and a figure of several keeps those that are there."""

        def reduce(part: Part) -> Part | None:
            names = tuple(name for name in list_part_studies(part) if name in studies)
            if not names or isinstance(part, Table | Heatmap):
                return part if names else None
            return part.model_copy(update={"studies": names})

        sections = {
            name: tuple(filter(None, map(reduce, getattr(self, name)))) for name in SECTIONS
        }
        best = tuple(name for name in self.best if name in studies)
        return self.model_copy(update={**sections, "best": best})
