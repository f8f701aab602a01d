"""Summarize several sweeps: each method against its baseline, in each set-up.

    python -m reports.sweeps.overview reports/sweeps/first_page.yaml README.md

The YAML file lists tables of sweeps:

    picture: search_spaces/overview.svg
    comparisons:
      - {sweep: ddml, table: "Both at their own best, frozen backbone", method: DDML, setup: heads}

The output is a forest plot, and the block of the Markdown file between `<!-- overview -->` and
`<!-- end overview -->`. Paths are relative to the Markdown file. Numbers come from the
`verdicts.json` of each sweep's report, of which `reports.readme` keeps a copy in
`search_spaces/verdicts`. If a row's best configuration is neutral, the best other one is shown.
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
from reports.pages.verdict import explain_verdicts, format_call, format_difference
from reports.pages.verdict_file import SweepVerdicts, read_verdicts
from reports.recipe import RecipePart
from reports.tables.labels import format_metric_label
from reports.tables.model import Field, Grid
from reports.tables.verdict import Verdict, group_verdicts

BLOCK = re.compile(r"(<!-- overview -->\n)(.*?)(<!-- end overview -->)", re.DOTALL)


class Comparison(RecipePart):
    """A table of a sweep in the overview.

    table: its title. method, setup: names in the overview. rows: the rows to show; empty for all.
    """

    sweep: str
    table: str
    method: str
    setup: str
    rows: tuple[str, ...] = ()


class Overview(RecipePart):
    """The YAML file.

    picture: an SVG file. verdicts: the folder of the verdicts. Both relative to the Markdown file.
    """

    picture: str
    verdicts: str = "search_spaces/verdicts"
    comparisons: tuple[Comparison, ...] = Setting(min_length=1)


@dataclass(frozen=True)
class Line:
    """One row of a sweep against its baseline."""

    comparison: Comparison
    verdict: Verdict
    sweep: SweepVerdicts


def drop_neutral_rows(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return each row once; for a neutral best, the best other cell."""
    cells = {verdict.cell for verdict in verdicts}
    return [verdict for verdict in verdicts if verdict.cell + OTHER not in cells]


def collect_lines(overview: Overview, load: Callable[[str], SweepVerdicts]) -> list[Line]:
    """Return the rows in the file's order.

    Args:
        load: returns the verdicts of a sweep by its name.

    Raises:
        ReportError: a sweep has no such table or row.
    """
    lines: list[Line] = []
    for comparison in overview.comparisons:
        sweep = load(comparison.sweep)
        table_verdicts = [
            verdict for verdict in sweep.verdicts if verdict.title == comparison.table
        ]
        if not table_verdicts:
            titles = ", ".join(dict.fromkeys(verdict.title for verdict in sweep.verdicts))
            raise ReportError(
                f"{comparison.sweep} has no verdicts of table {comparison.table!r}, only of "
                f"{titles}."
            )
        names = dict.fromkeys(verdict.cell.removesuffix(OTHER) for verdict in table_verdicts)
        for row in comparison.rows:
            if row not in names:
                raise ReportError(
                    f"The table {comparison.table!r} of {comparison.sweep} has no row {row!r}, "
                    f"only {', '.join(names)}."
                )
        lines += [
            Line(comparison, verdict, sweep)
            for verdict in drop_neutral_rows(table_verdicts)
            if verdict.cell.removesuffix(OTHER) in (comparison.rows or names)
        ]
    return lines


def format_overview(lines_shown: Sequence[Line], picture: str) -> str:
    """Write the block: the picture, a table for each metric, and the sweeps that they come from."""
    sweeps = {line.sweep.sweep: line.sweep.sweep_id for line in lines_shown}
    sources = ", ".join(f"{name} ({sweep})" for name, sweep in sweeps.items())
    text = [f"![Every method against its baseline]({picture})", ""]
    for metric in dict.fromkeys(line.verdict.metric for line in lines_shown):
        delta = f"Δ {format_metric_label(metric)} [95 %]"
        headers = ("method", "set-up", "row", "best is", delta, "n", "verdict")
        rows = []
        for line in (line for line in lines_shown if line.verdict.metric == metric):
            verdict, comparison = line.verdict, line.comparison
            row = (
                comparison.method,
                comparison.setup,
                verdict.cell.removesuffix(OTHER),
                "neutral" if verdict.cell.endswith(OTHER) else "",
                format_difference(verdict),
                str(verdict.n),
                format_call(verdict),
            )
            rows.append(tuple(map(Field, row)))
        text += [*format_pipe_table(Grid(headers, 4, (False,) * len(headers), tuple(rows))), ""]
    groups = group_verdicts([line.verdict for line in lines_shown])
    text.append(
        f"Sweeps: {sources}. Best is neutral: in validation no configuration of the method beat "
        "the method switched off; the row is its best other configuration. "
        f"{explain_verdicts([item for group in groups for item in group])}"
    )
    return "\n".join(text)


def draw_overview_plot(lines_shown: Sequence[Line], path: Path) -> None:
    """Draw the forest plot as an SVG file.

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
        for line in lines_shown
    ]
    drawn = forest.draw_forest_plot(named)
    if drawn is None:
        raise ReportError("None of the comparisons is finished, so there is nothing to draw.")
    with use_report_style():
        drawn.figure.savefig(path, metadata={"Date": None, "Creator": None})


def fill_block(text: str, block: str) -> str:
    """Return a Markdown file with its block filled again.

    Raises:
        ReportError: the file has no block.
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
    folder = readme.parent / overview.verdicts
    overview_lines = collect_lines(
        overview, cache(lambda sweep: read_verdicts(folder / f"{sweep}.json"))
    )
    text = fill_block(
        readme.read_text(encoding="utf-8"), format_overview(overview_lines, overview.picture)
    )
    draw_overview_plot(overview_lines, readme.parent / overview.picture)
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
