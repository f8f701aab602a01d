"""Several sweeps at a glance: what each method is against its baseline, in each set-up.

    python -m reports.sweeps.overview reports/sweeps/first_page.yaml README.md

The YAML file says which tables of which sweeps' pages (`search_spaces/NAME.md`) stand in it:

    picture: search_spaces/overview.svg
    comparisons:
      - {sweep: ddml, table: "Both at their own best, frozen backbone", method: DDML, setup: heads}

Written are the picture, a forest plot, and the file's block between `<!-- overview -->` and
`<!-- end overview -->`. Paths are relative to the Markdown file. No number is typed by hand: a page
is filled from its sweep's report. Where a row's best is neutral, its best other cell stands there
for both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from reports.errors import ReportError
from reports.figures import forest
from reports.figures.drawn import style
from reports.frame import OTHER
from reports.pages.markup import pipes
from reports.pages.verdict import difference, note
from reports.sweeps import printed
from reports.tables import model
from reports.tables.labels import metric_label, p_equals
from reports.tables.verdict import Verdict

BLOCK = re.compile(r"(<!-- overview -->\n)(.*?)(<!-- end overview -->)", re.DOTALL)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Comparison(_Part):
    """table: the title of a table on that sweep's page. metric: which of its columns. method,
    setup: what it is called here. rows: its rows that stand here; none named: all."""

    sweep: str
    table: str
    method: str
    setup: str
    metric: str = "test/recall_at_1"
    rows: tuple[str, ...] = ()


class Overview(_Part):
    """picture: an SVG file. pages: the folder of the sweeps' pages. Both from that of the Markdown
    file."""

    picture: str
    pages: str = "search_spaces"
    comparisons: tuple[Comparison, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Line:
    """A row of a sweep beside its baseline."""

    comparison: Comparison
    verdict: Verdict
    page: printed.Page


def lines(overview: Overview, page_of: Callable[[str], printed.Page]) -> list[Line]:
    """The rows, in the file's order.

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
    return [each for each in printed.beside(own) if each.cell.removesuffix(OTHER) in wanted]


def markdown(found: Sequence[Line], picture: str) -> str:
    """The block: the picture, a table for each metric that rows are compared by, and what they were
    made of."""
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
    rows = tuple(tuple(map(model.Field, _fields(line))) for line in found)
    return pipes(model.Grid(headers, 4, (False,) * len(headers), rows))


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
    """The forest plot, an SVG file.

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
    """A Markdown file with its block filled anew.

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
    found = lines(overview, cache(lambda sweep: printed.page(folder / f"{sweep}.md")))
    text = filled(readme.read_text(encoding="utf-8"), markdown(found, overview.picture))
    plot(found, readme.parent / overview.picture)
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
