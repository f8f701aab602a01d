"""The `report:` section of a sweep's YAML: which tables and figures are made of which studies.

A recipe names studies and metrics; it holds no numbers. The sweep's builder checks it together
with the rest of the YAML (`extra="forbid"`), writes it into the sweep's `sweep.json`, and
`reports.compile.compile_report` reads it from there. This module imports nothing but pydantic, so
that a plan stays quick.
"""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from reports.kinds import DEFAULT_RULE, FIGURES, RULES, TABLES, find_figure_options


class RecipePart(BaseModel):
    """Base of the parts of a recipe: unknown keys are refused, and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def to_level_name(value: Any) -> Any:
    """Return `on` and `off` as text: YAML reads the bare words as booleans."""
    return ("off", "on")[value] if isinstance(value, bool) else value


Level = Annotated[Any, AfterValidator(to_level_name)]


class SourceBlock(RecipePart):
    """Sources of the settings of rows and studies, as given in a paper's spec.

    studies: patterns of the names of studies (`*` stands for any letters).
    rows: patterns of the names of rows.
    fields: (field, value, source).
    varied: (field, values in the rows, source).
    """

    studies: tuple[str, ...]
    rows: tuple[str, ...] = ("*",)
    fields: tuple[tuple[str, Any, str], ...] = ()
    varied: tuple[tuple[str, tuple[Any, ...], str], ...] = ()

    def includes_any(self, studies: Collection[str]) -> bool:
        """Return whether the block applies to any of these studies."""
        return any(fnmatchcase(name, pattern) for name in studies for pattern in self.studies)

    def list_entries(self) -> list[tuple[str, Any, str]]:
        """Return the entries of both kinds."""
        return [*self.fields, *((field, list(values), why) for field, values, why in self.varied)]


class Published(RecipePart):
    """Printed numbers of a paper, shown beside the measured ones.

    table: `<file>/<table>` of `reports/published/`, e.g. `ddml/table4`.
    column: the printed column for the table's only metric, e.g. `CUB/R@1`.
    columns: the printed column of each of several metrics, `{metric: column}`.
    rows: the printed row of each cell, `{cell: row}`; or `{cell: {metric: row}}` if the paper
        prints several numbers of one cell in different rows. A components table needs none if the
        published rows have the same component coordinates.
    others: patterns (`ViT: *`) of printed rows that are shown below although no cell matches them,
        as published only; true shows all.
    """

    table: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9_]+$")
    column: str | None = None
    columns: dict[str, str] = Field({})
    rows: dict[str, str | dict[str, str]] = Field({})
    others: Literal[True] | tuple[str, ...] = ()

    @model_validator(mode="after")
    def check_has_column(self) -> "Published":
        if (self.column is None) == (not self.columns):
            raise ValueError("Published numbers need a column. Give either `column` or `columns`.")
        return self

    def find_row(self, cell: str, metric: str) -> str | None:
        """Return the printed row beside a cell's metric, or None."""
        printed_rows = self.rows.get(cell)
        return printed_rows.get(metric) if isinstance(printed_rows, dict) else printed_rows


class PrintedRows(RecipePart):
    """A gain that a paper prints: the number of one printed row minus that of its baseline.

    table: `<file>/<table>` of `reports/published/`, e.g. `ddml/table1`.
    column: the printed column, e.g. `CUB/R@1`.
    row, baseline: names of the printed rows.
    metric: the metric of this table with which the gain is compared.
    """

    table: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9_]+$")
    column: str
    row: str
    baseline: str
    metric: str = "test/recall_at_1"


if TYPE_CHECKING:
    TableKind = str
    RuleName = str
else:
    TableKind = Literal[tuple(TABLES)]
    RuleName = Literal[tuple(RULES)]


class Table(RecipePart):
    """One table of one study.

    study: name of the study.
    title: heading above the table.
    caption: text above the table.
    matrix: one of the factors in `within`, whose levels are the columns of a matrix of differences
        to the baseline, which is printed before the table; its rows are the levels of the other
        factors. Intervals and verdicts hold together over all comparisons of the table.
    published: numbers of a paper beside the measured ones.
    gains: the gain that a paper prints for each row, `{row or level: {table, column, row,
        baseline}}`; the verdicts say if a gain of this size is excluded.
    kind: `components` (all on/off cells), `promoted` (cells of a promote study beside their results
        in the source study), `compare` (cells of a study that lists them, beside a baseline),
        `search` (the best trials), `effects` (main effects, interactions and Shapley attribution
        over the factors of a study that lists its cells) or `importance` (of a search).
    metrics: metrics shown; `val/…` and `test/…` are those of the selected epoch (`final/val/…` in
        the tracker).
    baseline: the cell from which differences are taken, by name or coordinates. Default: all
        components off, or the first variant. A search table does not use it.
    within: crossed factors within which differences are taken: the baseline of a row has the row's
        levels of these factors.
    components: columns of a components table, in the order of the paper. Default: the order of the
        study.
    top: number of trials in a search table, or of interactions in an effects table.
    digits: decimals of percentages.
    spread: number after ±: `sd` over seeds, or `t95`, half the 95 % interval of the mean.
    order: largest number of factors of an interaction in an effects table.
    blocks: `classes` judges the rows of a `compare` table over classes and seeds, so that claims
        are about further classes, given this training set. It needs the values by class that each
        trial records of MAP@R and Recall@1; other metrics are judged over seeds.
    evaluator: method that estimates importances in an importance table.
    alone: leave out the tables of effects or importances that otherwise follow this table.
    """

    kind: TableKind
    study: str
    metrics: tuple[str, ...] = Field(("val/map_at_r",), min_length=1)
    title: str = ""
    caption: str = ""
    baseline: str | dict[str, Level] | None = None
    within: tuple[str, ...] = ()
    matrix: str | None = None
    published: Published | None = None
    gains: dict[str, PrintedRows] = Field({})
    components: tuple[str, ...] = ()
    top: int = Field(10, ge=1)
    digits: int = Field(2, ge=0, le=6)
    spread: Literal["sd", "t95"] = "sd"
    order: int = Field(2, ge=1, le=4)
    blocks: Literal["classes"] | None = None
    evaluator: Literal["ped_anova", "fanova"] = "ped_anova"
    alone: bool = False

    @model_validator(mode="after")
    def check_columns(self) -> "Table":
        """Refuse printed numbers that the table cannot show."""
        if self.gains and self.kind != "compare":
            raise ValueError(
                f"`gains` belongs to a table of the kind compare, not {self.kind}. Remove `gains`."
            )
        if self.blocks is not None and self.kind != "compare":
            raise ValueError(
                f"`blocks` belongs to a table of the kind compare, not {self.kind}. "
                "Remove `blocks`."
            )
        if self.matrix is not None and (self.kind != "compare" or self.matrix not in self.within):
            raise ValueError(
                f"`matrix` names the factor {self.matrix}, which must be one of the factors in "
                "`within` of a table of the kind compare. Add the factor to `within`."
            )
        for name, gain in self.gains.items():
            if gain.metric not in self.metrics:
                raise ValueError(
                    f"`gains.{name}.metric` is {gain.metric}, which is not one of the table's "
                    "`metrics`. Add the metric to `metrics`."
                )
        if self.published is None:
            return self
        metrics_by_option: dict[str, Collection[str]] = {"columns": self.published.columns}
        metrics_by_option |= {
            f"rows.{cell}": rows
            for cell, rows in self.published.rows.items()
            if isinstance(rows, dict)
        }
        for option, metrics in metrics_by_option.items():
            if unknown := sorted({*metrics} - {*self.metrics}):
                raise ValueError(
                    f"`published.{option}` names {unknown[0]}, which is not one of the table's "
                    "`metrics`. Add the metric to `metrics`."
                )
        if self.published.column is not None and len(self.metrics) > 1:
            raise ValueError(
                "`published.column` is for a table of one metric, but this table has several. "
                "Write `published.columns: {METRIC: COLUMN, …}` in its place."
            )
        return self

    def find_published_column(self, metric: str) -> str | None:
        """Return the printed column that stands beside `metric`, or None."""
        if self.published is None:
            return None
        return self.published.column or self.published.columns.get(metric)


class Drawing(RecipePart):
    """Options of all figures.

    metric: metric shown, as in a table.
    title: heading above the figure.
    caption: text above the figure.
    """

    metric: str = "val/map_at_r"
    title: str = ""
    caption: str = ""


class FigureOptions(RecipePart):
    """Base of the options of a kind of figure.

    shown_as: kind of table that its studies must have (`search`, `effects`, `promoted`); empty for
        any study.
    several: whether one figure can show several studies.
    """

    shown_as: ClassVar[str] = ""
    several: ClassVar[bool] = False

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        """Return option → the names in it, each of a factor that the study must vary."""
        return {}


class HeatmapOptions(FigureOptions):
    """A metric over two coordinates of a grid study, averaged over seeds.

    digits: decimals of percentages.
    x, y: coordinates of the study (`method.alpha`). Each level is one column or row, ascending and
        evenly spaced, so that a logarithmic grid looks logarithmic.
    """

    shown_as = "heatmap"
    x: str
    y: str
    digits: int = Field(2, ge=0, le=6)

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"x": (self.x,), "y": (self.y,)}


class CurvesOptions(FigureOptions):
    """A metric per epoch, one line per cell, with a band of ± one sd over seeds.

    cells: names of the cells shown. Default: all; of a search, the best `top`.
    top: number of cells of a search.
    """

    several = True
    cells: tuple[str, ...] = ()
    top: int = Field(8, ge=1, le=20)


class FactorCurvesOptions(FigureOptions):
    """A metric against one factor: the mean over seeds at each level, with its 95 % t interval.

    The studies list their cells; cells that do not vary `x` are left out. Each combination of the
    other coordinates' levels has its own line; a combination with one level of `x` is left out if
    others have more.

    x: the factor, e.g. `method.gamma`.
    at: levels of other coordinates; only cells with them are shown, `{method.beta: 0.1}`.
    """

    shown_as = "effects"
    several = True
    x: str
    at: dict[str, Level] = Field({})

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"x": (self.x,), "at": tuple(self.at)}


class Figure(Drawing):
    """A figure of a given kind.

    kind: one of `reports/kinds.py`, or of an installed package (entry point `ablate.figures`).
    options: options of the kind.
    studies: names of studies.
    """

    kind: str
    studies: tuple[str, ...] = Field(min_length=1)
    options: dict[str, Any] = Field({})

    @field_validator("kind", mode="after")
    @classmethod
    def check_installed(cls, kind: str) -> str:
        """Refuse a kind of figure that no package has."""
        if kind not in FIGURES:
            raise ValueError(
                f"{kind!r} is no kind of figure. Choose one of {', '.join(FIGURES)}, or install "
                "the package that has this kind."
            )
        return kind

    @model_validator(mode="after")
    def check_options(self) -> "Figure":
        """Refuse options that the kind lacks, and several studies if the kind shows only one."""
        if (model := find_figure_options(self.kind)) is None:
            return self  # the kind declares no options to check against
        model.model_validate(self.options)
        if len(self.studies) > 1 and not model.several:
            studies = ", ".join(self.studies)
            raise ValueError(f"{self.kind} shows one study. Name only one of {studies}.")
        return self


class Heatmap(Drawing, HeatmapOptions):
    """Short form of a figure of the kind `heatmap`.

    study: name of the study.
    """

    study: str


class Curves(Drawing, CurvesOptions):
    """Short form of a figure of the kind `curves`.

    studies: names of studies.
    """

    studies: tuple[str, ...] = Field(min_length=1)


class FactorCurves(Drawing, FactorCurvesOptions):
    """Short form of a figure of the kind `factor_curves`.

    studies: names of studies.
    """

    studies: tuple[str, ...] = Field(min_length=1)


Part = Table | Heatmap | Curves | FactorCurves | Figure
SECTIONS = ("tables", "heatmaps", "curves", "factor_curves", "figures")


def list_part_studies(part: Part) -> tuple[str, ...]:
    """Return the studies that a part of a recipe names."""
    return (part.study,) if isinstance(part, Table | Heatmap) else part.studies


def expand_short_form(part: Heatmap | Curves | FactorCurves, kind: str) -> Figure:
    """Return the figure that a short form stands for."""
    fields = part.model_dump(exclude={"study", "studies"})
    drawing = {name: fields.pop(name) for name in Drawing.model_fields}
    return Figure(kind=kind, studies=list_part_studies(part), options=fields, **drawing)


class Recipe(RecipePart):
    """The whole `report:` section.

    primary: metric that decides the tables that show it. Default: the metric of the objective, on
        the test split. Other metrics are shown beside it and decide nothing.
    smallest: δ, the smallest effect of interest, by metric (`map_at_r: 0.3`), in the displayed
        unit. Default: 0.3 points of MAP@R and similar metrics, 0.5 of other percentages.
    rule: how rows are compared with their baseline, by name (`pooled_or_holm`,
        `dunnett_and_t`, `holm_t`, or one of an installed package).
    looks: number of times at which verdicts are read, with more seeds each time (`--seeds`). All
        looks together keep the error level; by default there is one (`reports/stats/blocks.py`).
    failed: "worst" judges rows with failed runs, which are open otherwise: a verdict must then hold
        both without these runs and with each of them at the worst value of the rows that share its
        baseline (and split).
    same_rates: true trains each row of the tables of kind `compare` again with the plain loss, at
        the row's own settings and seeds, and shows the differences in a further column, which has
        no verdicts and takes part in no correction.
    best: studies whose best configuration is written as YAML (default: all).
    sources: sources of the settings; in a file, the name of the file that has them.
    """

    tables: tuple[Table, ...] = ()
    heatmaps: tuple[Heatmap, ...] = ()
    curves: tuple[Curves, ...] = ()
    factor_curves: tuple[FactorCurves, ...] = ()
    figures: tuple[Figure, ...] = ()
    primary: str | None = None
    smallest: dict[str, Annotated[float, Field(gt=0)]] = Field({})
    rule: RuleName = DEFAULT_RULE
    looks: int | None = Field(None, ge=1, le=20)
    failed: Literal["worst"] | None = None
    same_rates: bool = False
    best: tuple[str, ...] = ()
    sources: tuple[SourceBlock, ...] = ()

    @model_validator(mode="after")
    def check_metrics(self) -> "Recipe":
        """Refuse a `primary` metric, or a metric in `smallest`, that no table shows."""
        metrics = {metric for table in self.tables for metric in table.metrics}
        if self.primary is not None and self.primary not in metrics:
            raise ValueError(
                f"no table shows the primary metric {self.primary}. Name one of the tables' "
                f"metrics: {', '.join(sorted(metrics)) or 'none'}."
            )
        names = {metric.rpartition("/")[2] for metric in metrics}  # without the split
        if unknown := sorted({*self.smallest} - names):
            raise ValueError(
                f"`smallest` names {unknown[0]}, which no table has as a metric. Name one of the "
                f"tables' metrics: {', '.join(sorted(names)) or 'none'}."
            )
        return self

    def list_figures(self) -> list[tuple[str, Figure]]:
        """Return (path in the spec, figure) of each figure, in the order of the report.

        Short forms are figures of their kind, and each search has its history.
        """
        figures = [
            (f"report.{section}.{i}", expand_short_form(part, kind))
            for section, kind in {"heatmaps": "heatmap", "factor_curves": "factor_curves"}.items()
            for i, part in enumerate(getattr(self, section))
        ]
        for i, table in enumerate(self.tables):
            if table.kind == "search":
                title = f"{table.title or table.study}: history"
                shown = {"metric": table.metrics[0], "options": {"digits": table.digits}}
                figure = Figure(kind="history", studies=(table.study,), title=title, **shown)
                figures.append((f"report.tables.{i}", figure))
        for i, part in enumerate(self.curves):
            figures.append((f"report.curves.{i}", expand_short_form(part, "curves")))
        return figures + [(f"report.figures.{i}", each) for i, each in enumerate(self.figures)]

    def map_studies_to_paths(self) -> dict[str, str]:
        """Return study → the path in the spec that names it first: `report.tables.0.study`."""
        paths: dict[str, str] = {}
        for section in SECTIONS:
            for i, part in enumerate(getattr(self, section)):
                for j, study in enumerate(list_part_studies(part)):
                    key = "study" if isinstance(part, Table | Heatmap) else f"studies.{j}"
                    paths.setdefault(study, f"report.{section}.{i}.{key}")
        for i, study in enumerate(self.best):
            paths.setdefault(study, f"report.best.{i}")
        return paths

    def restrict_to_studies(self, studies: Collection[str]) -> "Recipe":
        """Return the recipe of these studies alone.

        A table or figure that shows none of these studies is left out. A figure of several studies
        keeps those that are given, and so does `best`.
        """

        def restrict_part(part: Part) -> Part | None:
            """Return a table or figure of the given studies alone, or None if it shows none."""
            names = tuple(name for name in list_part_studies(part) if name in studies)
            if not names:
                return None
            if isinstance(part, Table | Heatmap):  # it shows one study, which is given
                return part
            return part.model_copy(update={"studies": names})

        restricted = {name: map(restrict_part, getattr(self, name)) for name in SECTIONS}
        sections = {name: tuple(filter(None, parts)) for name, parts in restricted.items()}
        best = tuple(name for name in self.best if name in studies)
        return self.model_copy(update={**sections, "best": best})
