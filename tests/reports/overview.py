"""Summarize several sweeps: each method against its baseline, in each set-up.

    python -m tests.reports.overview tests/reports/first_page.yaml README.md

The YAML file lists tables of sweeps:

    picture: docs/pictures/overview.svg
    comparisons:
      - {sweep: ddml, table: "Both at their own best, frozen backbone", method: DDML, setup: heads}

The output is a forest plot, and the block of the Markdown file between `<!-- overview -->` and
`<!-- end overview -->`. Paths are relative to the Markdown file. Numbers come from the
`verdicts.json` of each sweep's report, of which `tests.reports.readme` keeps a copy in
`search_spaces/results/verdicts`. A row `<name>, not neutral` is shown instead of the row `<name>`,
whose best configuration is neutral.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml
from pydantic import Field as Setting

from reports.figures import forest
from reports.figures.figure import use_report_style
from reports.frame import OTHER
from reports.pages.markup import format_pipe_table
from reports.pages.verdict_text import (
    SweepVerdicts,
    explain_verdicts,
    format_call,
    format_scope,
    read_verdicts,
)
from reports.recipe import RecipePart
from reports.tables.model import Field, TableGrid
from reports.tables.questions import build_questions, format_difference, join_levels
from reports.tables.verdict import Verdict
from trainables.words.errors import ReportError
from trainables.words.metrics import format_metric_label

BLOCK = re.compile(r"(<!-- overview -->\n)(.*?)(<!-- end overview -->)", re.DOTALL)


class Comparison(RecipePart):
    """A table of a sweep in the overview.

    table: its title. method, setup: names in the overview. rows: the rows to show; empty for all.
    note: what a reader of the verdict must know.
    """

    sweep: str
    table: str
    method: str
    setup: str
    rows: tuple[str, ...] = ()
    note: str = ""


class Overview(RecipePart):
    """The YAML file.

    picture: an SVG file. verdicts: the folder of the verdicts. Both relative to the Markdown file.
    """

    picture: str
    verdicts: str = "search_spaces/results/verdicts"
    comparisons: tuple[Comparison, ...] = Setting(min_length=1)


@dataclass(frozen=True)
class Line:
    """One row of a sweep against its baseline."""

    comparison: Comparison
    verdict: Verdict
    sweep: SweepVerdicts


def collect_lines(overview: Overview, load: Callable[[str], SweepVerdicts]) -> list[Line]:
    """Return the rows that an overview lists, in order; ReportError for a missing table or row.

    load: returns the verdicts of a sweep by its name.
    """
    lines: list[Line] = []
    for comparison in overview.comparisons:
        sweep = load(comparison.sweep)
        verdicts = {v.cell: v for v in sweep.verdicts if v.title == comparison.table}
        rows = dict.fromkeys(cell.removesuffix(OTHER) for cell in verdicts)
        if not verdicts:
            titles = ", ".join(dict.fromkeys(verdict.title for verdict in sweep.verdicts))
            raise ReportError(
                f"{comparison.sweep} has no verdicts of table {comparison.table!r}. Its tables "
                f"are {titles}."
            )
        if unknown := [row for row in comparison.rows if row not in rows]:
            raise ReportError(
                f"The table {comparison.table!r} of {comparison.sweep} has no row {unknown[0]!r}. "
                f"Its rows are {', '.join(rows)}."
            )
        for row in rows:
            if not comparison.rows or row in comparison.rows:
                cell = row + OTHER if row + OTHER in verdicts else row  # with the method on
                lines.append(Line(comparison, verdicts[cell], sweep))
    return lines


def format_overview(lines: Sequence[Line], picture: str) -> str:
    """Write the overview in Markdown: the picture, a table for each metric, the sweeps' names."""
    text = [f"![Differences to the plain loss, with intervals]({picture})", ""]
    for metric in dict.fromkeys(line.verdict.metric for line in lines):
        listed = [line for line in lines if line.verdict.metric == metric]
        level = join_levels([line.verdict for line in listed])
        delta = f"Δ {format_metric_label(metric)} [{level}]"
        headers = ("method", "set-up", "row", delta, "blocks", "verdict", "note")
        rows = [_format_row(line) for line in listed]
        grid = TableGrid(headers, labels=3, further=(False,) * len(headers), rows=tuple(rows))
        text += [*format_pipe_table(grid), ""]
    sources = dict.fromkeys(f"{line.sweep.sweep} ({line.sweep.sweep_id})" for line in lines)
    verdicts = _list_verdicts(lines)
    counts = Counter(format_call(verdict).partition(" (")[0] for verdict in verdicts)
    found = ", ".join(f"{count} {call}" for call, count in counts.items())
    text += [f"Comparisons: {len(lines)}. Verdicts: {found}.", ""]
    scopes = dict.fromkeys(format_scope(question) for question in build_questions(verdicts))
    text.append(
        f"Sweeps: {', '.join(sources)}. A row is the best configuration in which the method is on. "
        f"{explain_verdicts(verdicts)} {' '.join(scopes)}"
    )
    return "\n".join(text)


def _list_verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """Return the verdicts under the names of the overview.

    Sweeps may give tables equal names, and each has a family of its own.
    """
    return [
        replace(
            line.verdict,
            key=f"{line.comparison.sweep}: {line.verdict.key}",
            name=line.comparison.method,
            rival="the plain loss",
            settings=(line.comparison.setup,),
        )
        for line in lines
    ]


def _format_row(line: Line) -> tuple[Field, ...]:
    """Return the fields of one line in the order of the headers of `format_overview`."""
    verdict, comparison = line.verdict, line.comparison
    blocks = f"{verdict.n} {verdict.unit}{'' if verdict.n == 1 else 's'}"
    row = (comparison.method, comparison.setup, verdict.cell.removesuffix(OTHER))
    call = format_call(verdict)
    call += " (tuning preferred it switched off)" if verdict.cell.endswith(OTHER) else ""
    judged = (format_difference(verdict), blocks, call, comparison.note)
    return tuple(map(Field, row + judged))


def draw_overview_plot(lines: Sequence[Line], path: Path) -> None:
    """Draw all differences with intervals (a forest plot) as SVG; ReportError if there are none."""
    plot = forest.draw_forest_plot(_list_verdicts(lines))
    if plot is None:
        raise ReportError("No comparison has a difference to draw. Finish one of the sweeps first.")
    with use_report_style():
        plot.figure.savefig(path, metadata={"Date": None, "Creator": None})


def fill_block(text: str, block: str) -> str:
    """Return a Markdown text with a new overview in its block; ReportError without a block."""
    filled, count = BLOCK.subn(lambda match: f"{match[1]}{block}\n{match[3]}", text)
    if not count:
        raise ReportError(
            "The file has no block `<!-- overview -->` … `<!-- end overview -->`. Add both lines."
        )
    return filled


def main(arguments: Sequence[str]) -> int:
    """Write the overview that a YAML file describes into a Markdown file, and draw its picture."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    recipe, page = map(Path, arguments)
    overview = Overview.model_validate(yaml.safe_load(recipe.read_text(encoding="utf-8")))
    folder = page.parent / overview.verdicts
    lines = collect_lines(overview, cache(lambda sweep: read_verdicts(folder / f"{sweep}.json")))
    block = format_overview(lines, overview.picture)
    text = fill_block(page.read_text(encoding="utf-8"), block)
    draw_overview_plot(lines, page.parent / overview.picture)
    page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
