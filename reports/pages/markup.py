"""Lay out a table's columns and notes, and write them as plain text and Markdown.

The main columns are the row, the first metric (mean ± sd), its Δ with interval, published numbers
and n. Further metrics and statistics follow in a second table; CSV has every number. Notes that
several tables share are printed once, numbered from 1, and named by number below each table
(`shared`).
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from reports.tables import labels
from reports.tables.model import AnyTable, Field, Grid, MeasuredMetric, Sheet, TableData, TableRow
from reports.tables.notes import EFFECT_SIZES

Column = tuple[str, bool, list[Field]]  # header, further, a field for each row
FURTHER = "Further metrics and statistics:"
MARKUP = re.compile(r"[\\*`<|]|(?<!\w)_|_(?!\w)")


def collect_footnotes(tables: Sequence[AnyTable]) -> tuple[str, ...]:
    """Return the notes that two or more tables share, in order."""
    counts = Counter(note for table in tables for note in dict.fromkeys(table.notes))
    return tuple(note for note, count in counts.items() if count > 1)


def note_numbers(table: AnyTable, shared: Sequence[str]) -> list[int]:
    """Return the numbers of a table's shared notes."""
    return [i for i, note in enumerate(shared, 1) if note in table.notes]


def list_own_notes(table: AnyTable, shared: Sequence[str]) -> list[str]:
    """Return a table's other notes, with their marks."""
    return [add_note_mark(note) for note in table.notes if note not in shared]


def _format_note_reference(table: AnyTable, shared: Sequence[str]) -> str:
    """Write `Notes 1–3, 5.`; empty without."""
    numbers = note_numbers(table, shared)
    texts = []
    for _, span in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [str(number) for _, number in span]
        texts.append(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(run))
    return f"Note{'' if len(numbers) == 1 else 's'} {', '.join(texts)}." if texts else ""


def mark_of(note: str) -> str:
    """Return the mark of a note: † for the published column, * for slips."""
    if note.startswith("Published:"):
        return "†"
    return "*" if note.startswith("Published ") else ""


def add_note_mark(note: str) -> str:
    """Return a note after its mark."""
    return f"{mark_of(note)} {note}".strip()


def mean_sd(measured: MeasuredMetric, metric: str, digits: int, spread: str = "sd") -> str:
    """Write `62.31 ± 0.42`, ± the sd or (`t95`) half the 95 % interval; `62.31` for one seed; empty
    without a result."""
    result, factor = measured.summary, labels.display_scale(metric)
    if result is None:
        return ""
    text = labels.format_number(result.mean * factor, digits)
    after = result.sd if spread == "sd" else measured.half
    return text if after is None else f"{text} ± {labels.format_number(after * factor, digits)}"


def format_printed(measured: MeasuredMetric) -> str:
    """Write a number as printed, `*` where the print contradicts itself."""
    printed = measured.printed
    if printed is None:
        return "–"
    text = f"{printed.value:.{printed.places}f}"
    text += f" ± {printed.sd:.{printed.places}f}" if printed.sd is not None else ""
    return text + ("*" if printed.slip else "")


def _format_improvement(measured: MeasuredMetric) -> str:
    """Write `0.72 [0.40, 0.96]`, the chance that a run beats one of the baseline.

    Where all of one side beat all of the other, no resample differs: the bootstrap has no interval.
    """
    chance = measured.compared.improvement if measured.compared else None
    if chance is None:
        return ""
    if chance.low is None or chance.high is None or chance.low == chance.high:
        return f"{chance.probability:.2f}"
    return f"{chance.probability:.2f} [{chance.low:.2f}, {chance.high:.2f}]"


def _can_permutation_decide(measured: MeasuredMetric) -> bool:
    """Return whether a corrected permutation p can be at most 0.05 with these seeds."""
    comparison, gap = measured.compared, measured.difference
    if comparison is None or gap is None:
        return False
    # with all differences of one sign p is 2 / 2^n, times the comparisons that Holm corrects over
    return gap.n >= 2 and comparison.family * 2.0 ** (1 - gap.n) <= 0.05


def build_grid(table: AnyTable) -> Grid:
    """Return the fields of a table in printing order."""
    if isinstance(table, Sheet):
        return Grid(table.headers, table.labels, (False,) * len(table.headers), table.rows)
    columns = [
        column
        for i, metric in enumerate(table.metrics)
        for column in _build_metric_columns(table, metric, i)
    ]
    if any(row.tuned is not None for row in table.rows):
        columns.append(("tuning trials", True, [Field(row.tuned or "") for row in table.rows]))
    return _lay_out_columns(table, columns)


def mean_sd_grid(table: TableData) -> Grid:
    """Return the plain table: labels, mean ± sd of each metric, and n."""
    columns: list[Column] = []
    for metric in table.metrics:
        results = [row.measured[metric] for row in table.rows]
        texts = [mean_sd(result, metric, table.recipe.digits) or "–" for result in results]
        fields = [Field(t, bold=r.better) for t, r in zip(texts, results, strict=True)]
        columns.append((labels.format_metric_label(metric), False, fields))
    return _lay_out_columns(table, columns)


def _lay_out_columns(table: TableData, columns: Sequence[Column]) -> Grid:
    """Return the rows' labels, these columns, and n."""
    seeds = []
    for row in table.rows:
        text = str(row.n) if row.n == row.planned else f"{row.n} of {row.planned}"
        seeds.append(Field(text if row.planned else "–", hint="; ".join(row.gaps)))  # –: refused
    heads, further, fields = zip(*columns, ("n", False, seeds), strict=True)
    rows = tuple(
        (*map(Field, row.labels), *row_fields)
        for row, row_fields in zip(table.rows, zip(*fields, strict=True), strict=True)
    )
    names, count = labels.format_coordinates(table.headers), len(table.headers)
    return Grid((*names, *heads), count, (*(False,) * count, *further), rows)


def _build_metric_columns(table: TableData, metric: str, position: int) -> list[Column]:
    """Return the columns of one metric."""
    digits, name = table.recipe.digits, labels.format_metric_name(metric)
    further = position > 0 and table.recipe.find_published_column(metric) is None
    searched = table.recipe.kind == "search"
    results = [row.measured[metric] for row in table.rows]

    def value(row: TableRow) -> Field:
        result = row.measured[metric]
        if text := mean_sd(result, metric, digits, table.recipe.spread):
            return Field(text, measured=True, bold=result.better)
        nothing = "missing" if row.planned else "refused"
        return Field("–" if row.printed_only else nothing, hint="; ".join(row.gaps))

    def delta(row: TableRow) -> Field:
        gap = row.measured[metric].difference
        if row.baseline or gap is None:
            return Field("baseline" if row.baseline else "")
        return Field(labels.format_with_interval(gap.mean, gap.low, gap.high, metric, digits))

    columns = [(labels.format_metric_label(metric), further, [value(row) for row in table.rows])]
    if not searched:
        columns.append((f"Δ {name} [95 %]", further, [delta(row) for row in table.rows]))
    if position == 0 and any(result.p_corrected is not None for result in results):
        sizes = [result.compared.dz if result.compared else None for result in results]
        reachable = any(map(_can_permutation_decide, results))
        statistics = {
            **(
                {"p (permutation)": [labels.format_p(r.p_corrected) for r in results]}
                if reachable
                else {}
            ),
            "d_z": ["" if dz is None else labels.format_number(dz, 2) for dz in sizes],
            "P(better) [95 %]": [_format_improvement(result) for result in results],
        }
        columns += [(head, True, [*map(Field, texts)]) for head, texts in statistics.items()]
    if table.recipe.find_published_column(metric) is not None:
        slips = [result.printed.slip if result.printed else None for result in results]
        texts = [format_printed(result) for result in results]
        fields = [Field(t, hint=slip or "") for t, slip in zip(texts, slips, strict=True)]
        columns.append(("published†", further, fields))
        if not searched:
            gaps = [
                labels.format_signed(r.summary.mean * r.printed.scale - r.printed.value, digits)
                if r.printed and r.summary
                else ""
                for r in results
            ]
            columns.append((f"{name} − published", True, [*map(Field, gaps)]))
    return columns


def split_further_columns(grid: Grid) -> list[Grid]:
    """Return the main table, and the one of its further columns if there are any, with the same
    rows."""
    places = range(len(grid.headers))
    tables = [choose(grid, [i for i in places if not grid.further[i]])]
    if any(grid.further):
        tables.append(choose(grid, [i for i in places if grid.further[i] or i < grid.labels]))
    return tables


def choose(grid: Grid, keep: list[int]) -> Grid:
    """Return the table with the columns at these positions."""
    rows = tuple(tuple(row[i] for i in keep) for row in grid.rows)
    return Grid(tuple(grid.headers[i] for i in keep), grid.labels, (False,) * len(keep), rows)


def format_plain_table(table: AnyTable, shared: Sequence[str] = ()) -> str:
    """Write the main columns for a terminal, aligned, with notes."""
    layout = split_further_columns(build_grid(table))[0]
    lines = [list(layout.headers), *([field.text for field in row] for row in layout.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = []
    for line in lines:
        padded = [
            text.ljust(width) if i < layout.labels else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        body.append("  ".join(padded).rstrip())
    rule = "─" * (sum(widths) + 2 * len(widths) - 2)
    notes = _wrap_notes(
        [*list_own_notes(table, shared), _format_note_reference(table, shared)], max(len(rule), 80)
    )
    title = [table.title] if table.title else []
    return "\n".join([*title, rule, body[0], rule, *body[1:], rule, *notes, ""])


def format_plain_notes(shared: Sequence[str]) -> str:
    """Write the shared notes for a terminal."""
    notes = _wrap_notes([add_note_mark(note) for note in shared], 100, range(1, len(shared) + 1))
    return "\n".join(["Notes", *notes, ""]) if notes else ""


def _wrap_notes(notes: Sequence[str], width: int, numbers: Iterable[int] = ()) -> list[str]:
    """Return wrapped notes, without those on columns that a terminal does not show."""
    heads = [f"{number}. " for number in numbers] or [""] * len(notes)
    return [
        textwrap.fill(head + note, width, initial_indent="  ", subsequent_indent="    ")
        for head, note in zip(heads, notes, strict=True)
        if note and not note.startswith(EFFECT_SIZES)
    ]


def format_markdown_table(table: AnyTable, shared: Sequence[str] = ()) -> str:
    """Write a section: the main table, the further columns, its own notes."""
    first, *second = [format_pipe_table(part) for part in split_further_columns(build_grid(table))]
    caption = [table.recipe.caption, ""] if table.recipe.caption else []
    more = [line for part in second for line in (FURTHER, "", *part, "")]
    notes = [f"- {_escape_star(note)}" for note in list_own_notes(table, shared)]
    reference = ["", text] if (text := _format_note_reference(table, shared)) else []
    return "\n".join(
        [f"### {table.title}", "", *caption, *first, "", *more, *notes, *reference, ""]
    )


def format_markdown_notes(shared: Sequence[str]) -> str:
    """Write the section of the shared notes."""
    notes = [f"{i}. {_escape_star(add_note_mark(note))}" for i, note in enumerate(shared, 1)]
    return "\n".join(["## Notes", "", *notes, ""]) if notes else ""


def _escape_star(text: str) -> str:
    return f"\\{text}" if text.startswith("*") else text


def format_pipe_table(layout: Grid) -> list[str]:
    """Write the lines of a Markdown table, with special characters escaped."""

    def line(fields: Sequence[Field]) -> str:
        texts = [MARKUP.sub(r"\\\g<0>", " ".join(field.text.split())) for field in fields]
        bold = [f"**{t}**" if f.bold else t for t, f in zip(texts, fields, strict=True)]
        return f"| {' | '.join(bold)} |"

    rule = [":--" if i < layout.labels else "--:" for i in range(len(layout.headers))]
    head = line([Field(header) for header in layout.headers])
    return [head, f"| {' | '.join(rule)} |", *map(line, layout.rows)]
