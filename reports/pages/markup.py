"""Lay out a table's columns and notes, and write them as plain text and Markdown.

The main columns are the row, the first metric (mean ± sd), its Δ with interval, published numbers
and n. Further metrics and statistics follow in a second table; CSV has every number. Notes that
several tables share (`shared`) are printed once, numbered from 1, and each table names their
numbers.

`tests.reports.readme` copies tables from the report's Markdown file.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from reports.figures.figure import DrawnFigure
from reports.frame import Frame
from reports.pages import verdict_text
from reports.pages.facts import collect_facts, collect_provenance
from reports.pages.verdict_text import VerdictSection
from reports.stats.blocks import LEVEL
from reports.stats.paired import Difference
from reports.tables import labels, term_shares
from reports.tables.cells import find_protocol
from reports.tables.model import (
    AnyTable,
    Comparison,
    Field,
    MeasuredMetric,
    Sheet,
    TableData,
    TableGrid,
    TableRow,
)
from reports.tables.notes import CHANCES, EFFECT_SIZES
from trainables.words.metrics import display_scale, format_metric_name

Column = tuple[str, bool, list[Field]]  # header, whether it is further, a field for each row
FURTHER = "Further metrics and statistics:"
MARKUP = re.compile(r"[\\*`<|]|(?<!\w)_|_(?!\w)")


def collect_footnotes(tables: Sequence[AnyTable]) -> tuple[str, ...]:
    """Return the notes that two or more tables share, in order."""
    counts = Counter(note for table in tables for note in dict.fromkeys(table.notes))
    return tuple(note for note, count in counts.items() if count > 1)


def list_note_numbers(table: AnyTable, shared: Sequence[str]) -> list[int]:
    """Return the numbers of a table's shared notes."""
    return [i for i, note in enumerate(shared, 1) if note in table.notes]


def list_own_notes(table: AnyTable, shared: Sequence[str]) -> list[str]:
    """Return a table's other notes, with their marks."""
    return [add_note_mark(note) for note in table.notes if note not in shared]


def _format_note_reference(table: AnyTable, shared: Sequence[str]) -> str:
    """Write `Notes 1, 2, 5.`, the numbers of a table's shared notes; empty without any."""
    numbers = list_note_numbers(table, shared)
    name = "Note" if len(numbers) == 1 else "Notes"
    return f"{name} {', '.join(map(str, numbers))}." if numbers else ""


def get_note_mark(note: str) -> str:
    """Return the mark of a note: † for the published column, * for slips."""
    if note.startswith("Published:"):
        return "†"
    return "*" if note.startswith("Published ") else ""


def add_note_mark(note: str) -> str:
    """Return a note after its mark."""
    return f"{get_note_mark(note)} {note}".strip()


def format_mean(measured: MeasuredMetric, metric: str, digits: int, spread: str = "sd") -> str:
    """Write `62.31 ± 0.42`: mean ± sd, or with spread `t95`, mean ± half its 95 % interval.

    The text is `62.31` for one seed, and empty without a result.
    """
    result, factor = measured.summary, display_scale(metric)
    if result is None:
        return ""
    mean = labels.format_number(result.mean * factor, digits)
    scatter = result.sd if spread == "sd" else measured.half
    if scatter is None:
        return mean
    return f"{mean} ± {labels.format_number(scatter * factor, digits)}"


def format_printed(measured: MeasuredMetric) -> str:
    """Write a paper's number as printed, with `*` after a misprint; a dash without a number."""
    printed = measured.printed
    if printed is None:
        return "–"
    text = f"{printed.value:.{printed.places}f}"
    text += f" ± {printed.sd:.{printed.places}f}" if printed.sd is not None else ""
    return text + ("*" if printed.slip else "")


def _format_improvement(measured: MeasuredMetric) -> str:
    """Write `0.72 [0.40, 0.96]`, the chance that a run beats one of the baseline.

    There is no interval where all runs of one side win: every bootstrap sample is then the same.
    """
    chance = measured.compared.improvement if measured.compared else None
    if chance is None:
        return ""
    interval = ""
    if chance.low is not None and chance.high is not None and chance.low != chance.high:
        interval = f" [{chance.low:.2f}, {chance.high:.2f}]"
    return f"{chance.probability:.2f}{interval}"


def build_grid(table: AnyTable) -> TableGrid:
    """Return the headers and fields of a table in printing order, for any output format."""
    if isinstance(table, Sheet):
        return TableGrid(table.headers, table.labels, (False,) * len(table.headers), table.rows)
    columns: list[Column] = []
    for i, metric in enumerate(table.metrics):
        columns += _build_metric_columns(table, metric, i)
    if any(row.tuned is not None for row in table.rows):
        columns.append(("tuning trials", True, [Field(row.tuned or "") for row in table.rows]))
    if any(row.shares for row in table.rows):
        shares = [Field(term_shares.format_term_shares(row.shares)) for row in table.rows]
        columns.append((term_shares.HEADER, True, shares))
    return _lay_out_columns(table, columns)


def build_plain_grid(table: TableData) -> TableGrid:
    """Return the plain table: labels, mean ± sd of each metric, and n."""
    columns: list[Column] = []
    for metric in table.metrics:
        results = [row.measured[metric] for row in table.rows]
        texts = [format_mean(result, metric, table.recipe.digits) or "–" for result in results]
        fields = [Field(t, bold=r.better) for t, r in zip(texts, results, strict=True)]
        columns.append((table.format_header(metric), False, fields))  # in the main table
    return _lay_out_columns(table, columns)


def _lay_out_columns(table: TableData, columns: Sequence[Column]) -> TableGrid:
    """Return a table's grid: the columns of row labels, the given columns, and n."""
    seeds = []
    for row in table.rows:
        text = str(row.n) if row.n == row.planned else f"{row.n} of {row.planned}"
        text += f" ({row.failed} failed)" if row.failed else ""
        seeds.append(Field(text if row.planned else "–", hint="; ".join(row.gaps)))  # –: none
    heads, further, fields = zip(*columns, ("n", False, seeds), strict=True)
    rows = tuple(  # columns become rows
        (*map(Field, row.labels), *row_fields)
        for row, row_fields in zip(table.rows, zip(*fields, strict=True), strict=True)
    )
    names, count = labels.format_coordinates(table.headers), len(table.headers)
    return TableGrid((*names, *heads), count, (*(False,) * count, *further), rows)


def _build_metric_columns(table: TableData, metric: str, position: int) -> list[Column]:
    """Return the columns of one metric: values, differences, statistics, published numbers."""
    name = format_metric_name(metric)
    has_published = table.recipe.find_published_column(metric) is not None
    has_differences = table.recipe.kind != "search"
    further = position > 0 and not has_published  # the columns stand in the second table
    results = [row.measured[metric] for row in table.rows]
    values = [_format_value(table, row, metric) for row in table.rows]
    # (header, whether the column stands in the second table, fields)
    columns = [(table.format_header(metric), further, values)]
    if has_differences:
        differences = [_format_difference(table, row, metric) for row in table.rows]
        levels = [result.compared.level for result in results if result.compared]
        level = labels.format_confidence(max(levels, default=LEVEL))
        columns.append((f"Δ {name} [{level}]", further, differences))
    if any(result.same_rates for result in results):
        gaps = [_format_gap(table, result.same_rates, metric) for result in results]
        columns.append((f"Δ {name} at the same rates [95 %]", further, gaps))
    if position == 0 and any(result.p_corrected is not None for result in results):
        for header, texts in _format_statistics(results).items():
            columns.append((header, True, list(map(Field, texts))))
    if has_published:
        printed = [
            Field(format_printed(r), hint=(r.printed and r.printed.slip) or "") for r in results
        ]
        columns.append(("published†", further, printed))
    if has_published and has_differences:
        printed_gaps = [
            Field(_format_published_gap(result, table.recipe.digits)) for result in results
        ]
        columns.append((f"{name} − published", True, printed_gaps))
    return columns


def _format_value(table: TableData, row: TableRow, metric: str) -> Field:
    """Return the field with a row's mean, or with why there is none: missing, refused, or –."""
    result = row.measured[metric]
    if text := format_mean(result, metric, table.recipe.digits, table.recipe.spread):
        return Field(text, measured=True, bold=result.better)
    reason = "missing" if row.planned else "refused"
    return Field("–" if row.printed_only else reason, hint="; ".join(row.gaps))


def _format_difference(table: TableData, row: TableRow, metric: str) -> Field:
    """Return the field with a row's difference to its baseline row; "baseline" in that row."""
    if row.baseline:
        return Field("baseline")
    return _format_gap(table, row.measured[metric].difference, metric)


def _format_gap(table: TableData, gap: Difference | None, metric: str) -> Field:
    """Return the field with a difference and its interval; empty without one."""
    if gap is None:
        return Field("")
    digits = table.recipe.digits
    return Field(labels.format_with_interval(gap.mean, gap.low, gap.high, metric, digits))


def _format_statistics(results: Sequence[MeasuredMetric]) -> dict[str, list[str]]:
    """Return header → column: p (if any can be at most 0.05 with these seeds), chances, d_z, …"""
    comparisons = [result.compared for result in results]
    columns = {}
    if any(map(_can_permutation_decide, comparisons)):
        columns["p (permutation)"] = [labels.format_p(result.p_corrected) for result in results]
    chances = [comparison.chances if comparison else None for comparison in comparisons]
    if any(chances):
        columns[CHANCES] = [", ".join(f"{chance:.2f}" for chance in each or ()) for each in chances]
    sizes = [comparison.dz if comparison else None for comparison in comparisons]
    columns["d_z"] = ["" if dz is None else labels.format_number(dz, 2) for dz in sizes]
    shares = [comparison.improvement for comparison in comparisons if comparison]
    header = "P(better)" if any(c and c.low is None for c in shares) else "P(better) [95 %]"
    columns[header] = [_format_improvement(result) for result in results]
    return columns


def _can_permutation_decide(comparison: Comparison | None) -> bool:
    """Return whether a corrected permutation p can be at most 0.05 with these seeds."""
    if comparison is None or comparison.difference is None:
        return False
    # with all differences of one sign p is 2 / 2^n, times the comparisons that Holm corrects over
    n = comparison.difference.n
    return n >= 2 and comparison.family * 2.0 ** (1 - n) <= 0.05


def _format_published_gap(result: MeasuredMetric, digits: int) -> str:
    """Write the measured mean minus the printed number; empty if either is missing."""
    if not result.printed or not result.summary:
        return ""
    gap = result.summary.mean * result.printed.scale - result.printed.value
    return labels.format_signed(gap, digits)


def split_further_columns(grid: TableGrid) -> list[TableGrid]:
    """Return the main table, and a table of the same rows with the further columns if any."""
    positions = range(len(grid.headers))
    tables = [_select_columns(grid, [i for i in positions if not grid.further[i]])]
    if any(grid.further):
        further = [i for i in positions if grid.further[i] or i < grid.labels]  # labels: in both
        tables.append(_select_columns(grid, further))
    return tables


def _select_columns(grid: TableGrid, positions: list[int]) -> TableGrid:
    """Return the table with the columns at these positions."""
    rows = tuple(tuple(row[i] for i in positions) for row in grid.rows)
    headers = tuple(grid.headers[i] for i in positions)
    return TableGrid(headers, grid.labels, (False,) * len(positions), rows)


def format_plain_table(table: AnyTable, shared: Sequence[str] = ()) -> str:
    """Write a table for a terminal: title, aligned main columns, notes of its own.

    `shared` are notes that several tables have: they are printed elsewhere and named by number.
    """
    grid = split_further_columns(build_grid(table))[0]
    lines = [list(grid.headers), *([field.text for field in row] for row in grid.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = []
    for line in lines:
        padded = [
            text.ljust(width) if i < grid.labels else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        body.append("  ".join(padded).rstrip())
    rule = "─" * (sum(widths) + 2 * len(widths) - 2)
    notes = [*list_own_notes(table, shared), _format_note_reference(table, shared)]
    title = [table.title] if table.title else []
    wrapped = _wrap_notes(notes, max(len(rule), 80))
    return "\n".join([*title, rule, body[0], rule, *body[1:], rule, *wrapped, ""])


def format_plain_notes(shared: Sequence[str]) -> str:
    """Write the shared notes for a terminal."""
    notes = [f"{i}. {add_note_mark(note)}" for i, note in enumerate(shared, 1)]
    return "\n".join(["Notes", *_wrap_notes(notes, 100), ""]) if notes else ""


def _wrap_notes(notes: Sequence[str], width: int) -> list[str]:
    """Return notes as indented text, without that on effect sizes, a column no terminal shows."""
    return [
        textwrap.fill(note, width, initial_indent="  ", subsequent_indent="    ")
        for note in notes
        if note and not note.startswith(EFFECT_SIZES)
    ]


def format_markdown_table(table: AnyTable, shared: Sequence[str] = ()) -> str:
    """Write a table as a section of Markdown: main columns, further columns, notes of its own.

    `shared` are notes that several tables have: they are printed elsewhere and named by number.
    """
    main, *further = [format_pipe_table(part) for part in split_further_columns(build_grid(table))]
    lines = [f"### {table.title}", ""]
    lines += [table.recipe.caption, ""] if table.recipe.caption else []
    lines += [*main, ""]
    for part in further:
        lines += [FURTHER, "", *part, ""]
    lines += [f"- {_escape_star(note)}" for note in list_own_notes(table, shared)]
    reference = _format_note_reference(table, shared)
    return "\n".join([*lines, *(["", reference] if reference else []), ""])


def format_markdown_notes(shared: Sequence[str]) -> str:
    """Write the section of the shared notes."""
    notes = [f"{i}. {_escape_star(add_note_mark(note))}" for i, note in enumerate(shared, 1)]
    return "\n".join(["## Notes", "", *notes, ""]) if notes else ""


def _escape_star(text: str) -> str:
    """Return a text whose first star does not begin a list in Markdown."""
    return f"\\{text}" if text.startswith("*") else text


def format_pipe_table(grid: TableGrid) -> list[str]:
    """Write the lines of a Markdown table, with special characters escaped."""

    def line(fields: Sequence[Field]) -> str:
        texts = [MARKUP.sub(r"\\\g<0>", " ".join(field.text.split())) for field in fields]
        bold = [f"**{t}**" if f.bold else t for t, f in zip(texts, fields, strict=True)]
        return f"| {' | '.join(bold)} |"

    rule = [":--" if i < grid.labels else "--:" for i in range(len(grid.headers))]
    head = line([Field(header) for header in grid.headers])
    return [head, f"| {' | '.join(rule)} |", *map(line, grid.rows)]


def format_report(
    frame: Frame,
    tables: Sequence[AnyTable],
    judged: VerdictSection,
    figures: Sequence[DrawnFigure],
    best: Mapping[str, str],
) -> str:
    """Write verdict, facts, tables, shared notes, figures and best configurations."""
    shared = collect_footnotes(tables)
    facts = collect_facts(frame) + collect_provenance(frame)
    lines = [
        f"# {frame.document.get('title') or frame.document['name']}",
        "",
        f"**{find_protocol(frame)}**",
        "",
        *verdict_text.format_verdict_section(judged),
        *(f"- {name}: {value}" for name, value in facts),
        *("", "## Tables", ""),
        *(format_markdown_table(table, shared) for table in tables),
    ]
    lines += [format_markdown_notes(shared)] if shared else []
    lines += ["## Figures", ""] if figures else []
    for figure in figures:
        image = f"![{figure.title}]({figure.key}.png)"
        if figure.apart:
            image = f"[{image}]({figure.key}.html)"
        lines += [image, "", f"{figure.title}. {figure.caption}", ""]
    for name, text in best.items():
        lines += [f"## {name}", "", "```yaml", text.rstrip(), "```", ""]
    return "\n".join(lines)
