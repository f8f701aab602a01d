"""Several sweeps at a glance: what each method is against its baseline, in each set-up.

    python -m reports.sweeps.overview reports/sweeps/first_page.yaml README.md

The YAML file says which tables of which sweeps' pages (`search_spaces/NAME.md`) stand in it:

    picture: search_spaces/overview.svg
    comparisons:
      - {sweep: ddml, table: "Both at their own best, frozen backbone", method: DDML, setup: heads}

Written are the picture, a forest plot, and the file's block between `<!-- overview -->` and
`<!-- end overview -->`. Paths are relative to the Markdown file. No number is typed by hand: a page
is filled from its sweep's report; its numbers have the digits that are printed there, as it stands
in the repository when the runs that it was made of are long gone. Where a row's best is neutral,
its best other cell stands there for both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml
from pydantic import Field as Setting

from reports.errors import ReportError
from reports.figures import forest
from reports.figures.figure import use_report_style
from reports.frame import OTHER
from reports.pages.markup import format_pipe_table
from reports.pages.verdict import explain_verdicts, format_difference
from reports.recipe import RecipePart
from reports.stats.paired import Difference
from reports.tables.labels import display_scale, format_metric_label, format_p_equation
from reports.tables.model import Field, Grid
from reports.tables.verdict import Call, Verdict, call_difference

BLOCK = re.compile(r"(<!-- overview -->\n)(.*?)(<!-- end overview -->)", re.DOTALL)
PAGE_BLOCK = re.compile(r"<!-- report (\S+) -->\n(.*?)<!-- end report -->", re.DOTALL)
SOURCE = re.compile(r"Measured by sweep (\S+) \((\w+)\) at commit ")
TABLE = re.compile(r"<!-- table: (.*?) -->\n(.*?)(?=<!-- table: |\Z)", re.DOTALL)
COLUMN = re.compile(r"(?<!\\)\|")
ESCAPE = re.compile(r"\\(.)")
DIFFERENCE = re.compile(r"([+−]?[\d.,]+)(?: \[([+−]?[\d.,]+), ([+−]?[\d.,]+)\])?")
NEUTRAL = " (best is neutral)"

Row = list[str]


class Comparison(RecipePart):
    """table: the title of a table on that sweep's page. metric: which of its columns. method,
    setup: what it is called here. rows: its rows that stand here; none named: all."""

    sweep: str
    table: str
    method: str
    setup: str
    metric: str = "test/recall_at_1"
    rows: tuple[str, ...] = ()


class Overview(RecipePart):
    """picture: an SVG file. pages: the folder of the sweeps' pages. Both from that of the Markdown
    file."""

    picture: str
    pages: str = "search_spaces"
    comparisons: tuple[Comparison, ...] = Setting(min_length=1)


@dataclass(frozen=True)
class Page:
    """What a sweep's page shows. tables: each title's, as rows of texts below their headers, the
    further columns behind the first."""

    name: str
    sweep_id: str
    tables: dict[str, tuple[Row, list[Row]]]

    def read_verdicts(self, title: str, metric: str) -> list[Verdict]:
        """Return the rows of a table beside their baseline, by a metric's column and difference.

        Raises:
            ReportError: no such table or column, or none of its rows is a baseline.
        """
        headers, rows = self.tables.get(title, ([], []))
        label = format_metric_label(metric)
        if label not in headers:
            what, known = (
                (f"column {label!r} in {title!r}", headers)
                if headers
                else (
                    f"table {title!r}",
                    [*self.tables],
                )
            )
            raise ReportError(f"The page of {self.name} has no {what}, only {', '.join(known)}.")
        # names of rows stand before the first metric, which has a difference beside it
        deltas = {header.removesuffix(" [95 %]") for header in headers}
        plain = [header.partition(",")[0].removesuffix(" ↓") for header in headers]
        first = min(i for i, name in enumerate(plain) if f"Δ {name}" in deltas)
        verdicts: list[Verdict] = []
        baseline = ""
        for row in rows:
            name = ", ".join(filter(None, row[:first]))
            fields = dict(zip(headers, row, strict=True))
            delta = row[headers.index(label) + 1]
            if delta == "baseline":
                baseline = name
                continue
            p = float(fields["p (Holm)"]) if fields.get("p (Holm)") else None
            n, row_name = int(fields.get("n") or 0), name.replace(NEUTRAL, "")
            verdicts.append(
                _judge_printed_row(title, metric, row_name, baseline, delta=delta, n=n, p=p)
            )
        if not baseline:
            raise ReportError(f"The table {title!r} of {self.name} has no baseline row.")
        return verdicts


def _judge_printed_row(
    title: str, metric: str, name: str, baseline: str, *, delta: str, n: int, p: float | None
) -> Verdict:
    """Judge a row by its printed difference, by the rule of the tables' own verdicts."""
    call: Call = "no result"
    gap, digits = None, 2
    if match := DIFFERENCE.fullmatch(delta):
        mean, low, high = (
            None
            if text is None
            else float(text.replace("−", "-").replace(",", "")) / display_scale(metric)
            for text in match.groups()
        )
        assert mean is not None
        gap, digits = Difference(mean, low, high, n, "as printed"), len(match[1].partition(".")[2])
        call = call_difference(metric, gap, p)
        if mean == low == high == 0:
            call = "no difference"
    return Verdict(
        title=title,
        key=title,
        study="",
        metric=metric,
        digits=digits,
        cell=name,
        label=name,
        baseline=baseline,
        call=call,
        difference=gap,
        n=n if gap else 0,
        p=p,
        needed=None,
        possible=True,
        tuned="",
    )


def read_page(path: Path) -> Page:
    """Read the block of a page.

    Raises:
        ReportError: there is no such file, or no block of one sweep in it.
    """
    if not path.is_file():
        raise ReportError(f"There is no page {path}, which `reports.readme` fills.")
    match = PAGE_BLOCK.search(path.read_text(encoding="utf-8"))
    source = match and SOURCE.match(match[2])
    if match is None or source is None:
        raise ReportError(f"{path} has no filled `<!-- report NAME -->` block.")
    tables = {title: _read_table(text) for title, text in TABLE.findall(match[2])}
    return Page(source[1], source[2], tables)


def _read_table(text: str) -> tuple[Row, list[Row]]:
    """Read a table: its first columns and the further ones, whose labels come again, as one."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    parts = [[_read_row(line) for line in block.splitlines()] for block in blocks]
    if not parts:
        return [], []
    (headers, _, *rows), *others = parts
    for other, _, *more in others:
        again = sum(1 for header, its in zip(headers, other, strict=False) if header == its)
        headers = headers + other[again:]
        rows = [row + its[again:] for row, its in zip(rows, more, strict=True)]
    return headers, rows


def _read_row(line: str) -> Row:
    texts = [each.strip() for each in COLUMN.split(line.strip())[1:-1]]
    bare = (each[2:-2] if each.startswith("**") and each.endswith("**") else each for each in texts)
    return [ESCAPE.sub(r"\1", each) for each in bare]


def drop_neutral_rows(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return each row once: one whose best is neutral by its best other cell."""
    cells = {each.cell for each in verdicts}
    return [each for each in verdicts if each.cell + OTHER not in cells]


@dataclass(frozen=True)
class Line:
    """A row of a sweep beside its baseline."""

    comparison: Comparison
    verdict: Verdict
    page: Page


def collect_lines(overview: Overview, page_of: Callable[[str], Page]) -> list[Line]:
    """Return the rows, in the file's order.

    Args:
        page_of: the page of a sweep by its name.

    Raises:
        ReportError: a page has no such table, column or row.
    """
    shown: list[Line] = []
    for comparison in overview.comparisons:
        page = page_of(comparison.sweep)
        verdicts = page.read_verdicts(comparison.table, comparison.metric)
        names = dict.fromkeys(each.cell.removesuffix(OTHER) for each in verdicts)
        for row in comparison.rows:
            if row not in names:
                raise ReportError(
                    f"The table {comparison.table!r} of {comparison.sweep} has no row {row!r}, "
                    f"only {', '.join(names)}."
                )
        shown += [
            Line(comparison, each, page)
            for each in drop_neutral_rows(verdicts)
            if each.cell.removesuffix(OTHER) in (comparison.rows or names)
        ]
    return shown


def format_overview(shown: Sequence[Line], picture: str) -> str:
    """Write the block: the picture, a table for each metric that rows are compared by, and what
    they were made of."""
    sweeps = {line.page.name: line.page.sweep_id for line in shown}
    made = ", ".join(f"{name} ({sweep})" for name, sweep in sweeps.items())
    how = explain_verdicts([line.verdict for line in shown]).partition(" Seeds that")[0]
    text = [f"![Every method against its baseline]({picture})", ""]
    for metric in dict.fromkeys(line.verdict.metric for line in shown):
        delta = f"Δ {format_metric_label(metric)} [95 %]"
        headers = ("method", "set-up", "row", "best is", delta, "n", "verdict")
        rows = []
        for line in (line for line in shown if line.verdict.metric == metric):
            verdict, comparison = line.verdict, line.comparison
            sure = verdict.call in ("better", "worse") and verdict.p
            row = (
                comparison.method,
                comparison.setup,
                verdict.label.removesuffix(OTHER),
                "neutral" if verdict.cell.endswith(OTHER) else "",
                format_difference(verdict),
                str(verdict.n),
                verdict.call + (f" ({format_p_equation(verdict.p or 0.0)})" if sure else ""),
            )
            rows.append(tuple(map(Field, row)))
        text += [*format_pipe_table(Grid(headers, 4, (False,) * len(headers), tuple(rows))), ""]
    text.append(
        f"Sweeps: {made}. Best is neutral: in validation nothing was better than the method "
        f"switched off; the row is then its best other cell. {how}"
    )
    return "\n".join(text)


def draw_overview_plot(shown: Sequence[Line], path: Path) -> None:
    """Draw the forest plot, an SVG file.

    Raises:
        ReportError: no row has a difference.
    """
    named = [
        replace(
            line.verdict,
            title=f"{line.comparison.method}, {line.comparison.setup}",
            key=f"{line.comparison.sweep}: {line.comparison.table}",
            label=line.verdict.label.replace(OTHER, " (best is neutral: the best other)"),
        )
        for line in shown
    ]
    drawn = forest.draw_forest_plot(named)
    if drawn is None:
        raise ReportError("None of the comparisons is finished, so there is nothing to draw.")
    with use_report_style():
        drawn.figure.savefig(path, metadata={"Date": None, "Creator": None})


def fill_block(text: str, block: str) -> str:
    """Return a Markdown file with its block filled anew.

    Raises:
        ReportError: it has none.
    """
    if BLOCK.search(text) is None:
        raise ReportError("There is no `<!-- overview -->` … `<!-- end overview -->` to fill.")
    return BLOCK.sub(lambda match: f"{match[1]}{block}\n{match[3]}", text)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    recipe, readme = map(Path, arguments)
    overview = Overview.model_validate(yaml.safe_load(recipe.read_text(encoding="utf-8")))
    folder = readme.parent / overview.pages
    shown = collect_lines(overview, cache(lambda sweep: read_page(folder / f"{sweep}.md")))
    text = fill_block(readme.read_text(encoding="utf-8"), format_overview(shown, overview.picture))
    draw_overview_plot(shown, readme.parent / overview.picture)
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
