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
from reports.figures.drawn import style
from reports.frame import OTHER
from reports.pages.markup import pipes
from reports.pages.verdict import difference, note
from reports.recipe import RecipePart
from reports.stats.paired import Difference
from reports.tables.labels import metric_label, p_equals, scale
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
P = "p (Holm)"

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

    def verdicts(self, title: str, metric: str) -> list[Verdict]:
        """Return the rows of a table beside their baseline.

        Args:
            metric: as in specs (`test/recall_at_1`), whose column and difference are read.

        Raises:
            ReportError: no such table or column, or none of its rows is a baseline.
        """
        if title not in self.tables:
            raise ReportError(
                f"found no table {title!r} on the page of {self.name}; expected one of: "
                f"{', '.join(self.tables)}"
            )
        headers, rows = self.tables[title]
        label = metric_label(metric)
        if label not in headers:
            raise ReportError(
                f"found no column {label!r} in {title!r} of {self.name}; expected one of: "
                f"{', '.join(headers)}"
            )
        value = headers.index(label)
        first = min(i for i, name in enumerate(headers) if f"Δ {_plain(name)} [95 %]" in headers)
        names = [", ".join(filter(None, row[:first])) for row in rows]
        found: list[Verdict] = []
        baseline = ""
        for name, row in zip(names, rows, strict=True):
            if row[value + 1] == "baseline":
                baseline = name
                continue
            n, p = (row[headers.index(each)] if each in headers else "" for each in ("n", P))
            texts = [row[value + 1], n, p]
            found.append(_verdict(title, metric, name=name, baseline=baseline, texts=texts))
        if not baseline:
            raise ReportError(
                f"found no baseline in {title!r} of {self.name}; expected a row of it"
            )
        return found


def read_page(path: Path) -> Page:
    """Read the block of a page.

    Raises:
        ReportError: there is no such file, or no block of one sweep in it.
    """
    if not path.is_file():
        raise ReportError(f"found no page {path}; expected one that `reports.readme` has filled")
    match = PAGE_BLOCK.search(path.read_text(encoding="utf-8"))
    source = match and SOURCE.match(match[2])
    if match is None or source is None:
        raise ReportError(f"found no filled `<!-- report NAME -->` block in {path}")
    tables = {title: _read_table(text) for title, text in TABLE.findall(match[2])}
    return Page(source[1], source[2], tables)


def _read_table(text: str) -> tuple[Row, list[Row]]:
    """Read a table: its first columns and the further ones, whose labels come again, as one."""
    parts: list[list[Row]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            parts[-1].append(_cells(line))
        elif parts[-1]:
            parts.append([])
    filled = [part for part in parts if part]
    if not filled:
        return [], []
    (headers, _, *rows), *others = filled
    for other, _, *more in others:
        again = sum(1 for mine, its in zip(headers, other, strict=False) if mine == its)
        headers = headers + other[again:]
        rows = [row + its[again:] for row, its in zip(rows, more, strict=True)]
    return headers, rows


def _cells(line: str) -> Row:
    texts = [each.strip() for each in COLUMN.split(line.strip())[1:-1]]
    bare = (each[2:-2] if each.startswith("**") and each.endswith("**") else each for each in texts)
    return [ESCAPE.sub(r"\1", each) for each in bare]


def _plain(header: str) -> str:
    """Return `Recall@1` for `Recall@1, test (%)`, as its difference is headed."""
    return header.partition(",")[0].removesuffix(" ↓")


def _verdict(title: str, metric: str, *, name: str, baseline: str, texts: Row) -> Verdict:
    """Make a verdict of a row's name and its texts of difference, n and p."""
    difference, n, p = texts
    label = name.replace(NEUTRAL, "")
    gap, digits = _difference(difference, metric, int(n or 0))
    corrected = float(p) if p else None
    return Verdict(
        title=title,
        key=title,
        study="",
        metric=metric,
        digits=digits,
        cell=label,
        label=label,
        baseline=baseline,
        call=_call(metric, gap, corrected),
        difference=gap,
        n=gap.n if gap else 0,
        p=corrected,
        needed=None,
        possible=True,
        tuned="",
    )


def _difference(text: str, metric: str, n: int) -> tuple[Difference | None, int]:
    """Return a difference on the scale of the runs, and with how many digits it is printed."""
    match = DIFFERENCE.fullmatch(text)
    if match is None:
        return None, 2
    mean, low, high = (
        None if each is None else float(each.replace("−", "-").replace(",", "")) / scale(metric)
        for each in match.groups()
    )
    assert mean is not None
    return Difference(mean, low, high, n, "as printed"), len(match[1].partition(".")[2])


def _call(metric: str, difference: Difference | None, p: float | None) -> Call:
    """Judge by the rule of the tables' own verdicts."""
    if difference is None:
        return "no result"
    if difference.mean == difference.low == difference.high == 0:
        return "no difference"
    return call_difference(metric, difference, p)


def leave_out_neutral(found: Sequence[Verdict]) -> list[Verdict]:
    """Return each row once: one whose best is neutral by its best other cell."""
    cells = {each.cell for each in found}
    return [each for each in found if each.cell + OTHER not in cells]


@dataclass(frozen=True)
class Line:
    """A row of a sweep beside its baseline."""

    comparison: Comparison
    verdict: Verdict
    page: Page


def lines(overview: Overview, page_of: Callable[[str], Page]) -> list[Line]:
    """Return the rows, in the file's order.

    Args:
        page_of: the page of a sweep by its name.

    Raises:
        ReportError: a page has no such table, column or row.
    """
    return [
        Line(comparison, each, page)
        for comparison in overview.comparisons
        for page in [page_of(comparison.sweep)]
        for each in _shown(comparison, page.verdicts(comparison.table, comparison.metric))
    ]


def _shown(comparison: Comparison, own: Sequence[Verdict]) -> list[Verdict]:
    there = dict.fromkeys(each.cell.removesuffix(OTHER) for each in own)
    for row in comparison.rows:
        if row not in there:
            raise ReportError(
                f"overview: found no row {row!r} in {comparison.table!r} of {comparison.sweep}; "
                f"expected one of: {', '.join(there)}"
            )
    wanted = comparison.rows or there
    return [each for each in leave_out_neutral(own) if each.cell.removesuffix(OTHER) in wanted]


def markdown(found: Sequence[Line], picture: str) -> str:
    """Write the block: the picture, a table for each metric that rows are compared by, and what
    they were made of."""
    sweeps = {line.page.name: line.page.sweep_id for line in found}
    made = ", ".join(f"{name} ({sweep})" for name, sweep in sweeps.items())
    how = note([line.verdict for line in found]).partition(" Seeds that")[0]
    metrics = dict.fromkeys(line.verdict.metric for line in found)
    tables = [
        each
        for metric in metrics
        for each in (*_table([line for line in found if line.verdict.metric == metric]), "")
    ]
    return "\n".join(
        [
            f"![Every method against its baseline]({picture})",
            "",
            *tables,
            f"Sweeps: {made}. Best is neutral: in validation nothing was better than the "
            f"method switched off; the row is then its best other cell. {how}",
        ]
    )


def _table(found: Sequence[Line]) -> list[str]:
    metric = metric_label(found[0].verdict.metric)
    headers = (
        "method",
        "set-up",
        "row",
        "best is",
        f"Δ {metric} [95 %]",
        "n",
        "verdict",
    )
    rows = tuple(tuple(map(Field, _fields(line))) for line in found)
    return pipes(Grid(headers, 4, (False,) * len(headers), rows))


def _fields(line: Line) -> tuple[str, ...]:
    told = line.verdict
    p = f" ({p_equals(told.p)})" if told.call in ("better", "worse") and told.p else ""
    return (
        line.comparison.method,
        line.comparison.setup,
        told.label.removesuffix(OTHER),
        "neutral" if told.cell.endswith(OTHER) else "",
        difference(told),
        str(told.n),
        told.call + p,
    )


def plot(found: Sequence[Line], path: Path) -> None:
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
        for line in found
    ]
    drawn = forest.forest(named)
    if drawn is None:
        raise ReportError("overview: found no difference to draw; expected finished comparisons")
    with style():
        drawn.figure.savefig(path, metadata={"Date": None, "Creator": None})


def filled(text: str, block: str) -> str:
    """Return a Markdown file with its block filled anew.

    Raises:
        ReportError: it has none.
    """
    if BLOCK.search(text) is None:
        raise ReportError("found no `<!-- overview -->` … `<!-- end overview -->` to fill")
    return BLOCK.sub(lambda match: f"{match[1]}{block}\n{match[3]}", text)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    recipe, readme = map(Path, arguments)
    overview = Overview.model_validate(yaml.safe_load(recipe.read_text(encoding="utf-8")))
    folder = readme.parent / overview.pages
    found = lines(overview, cache(lambda sweep: read_page(folder / f"{sweep}.md")))
    text = filled(readme.read_text(encoding="utf-8"), markdown(found, overview.picture))
    plot(found, readme.parent / overview.picture)
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
