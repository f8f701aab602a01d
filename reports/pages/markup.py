"""A table's columns, its notes, and the table as plain text and Markdown.

First what is read first: the row, the first metric (mean ± sd), its Δ with interval, what is
published, n. Further metrics and statistics stand in a second table below; CSV has every number.
Notes of several tables are told once in a report and named by number below each table.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.tables import labels
from reports.tables.model import AnyTable, Field, Grid, Measured, Sheet, TableData, TableRow
from reports.tables.notes import EFFECT_SIZES

Column = tuple[str, bool, Callable[[TableRow], Field]]  # header, further, field of a row
FURTHER = "Further metrics and statistics:"
MARKUP = re.compile(r"[\\*`<|]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True)
class Footnotes:
    """shared: the notes that stand under more than one table, numbered from 1 in this order."""

    shared: tuple[str, ...] = ()

    def numbers(self, table: AnyTable) -> list[int]:
        """Return the numbers of the shared notes that belong to a table."""
        return [i for i, note in enumerate(self.shared, 1) if note in table.notes]

    def own(self, table: AnyTable) -> list[str]:
        """Return a table's other notes, after their marks."""
        return [with_mark(note) for note in table.notes if note not in self.shared]

    def reference(self, table: AnyTable) -> str:
        """Write `Notes 1–3, 5.`; empty without."""
        numbers = self.numbers(table)
        spans: list[list[int]] = []
        for number in numbers:
            if spans and number == spans[-1][-1] + 1:
                spans[-1].append(number)
            else:
                spans.append([number])
        texts = [f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans]
        return f"Note{'' if len(numbers) == 1 else 's'} {', '.join(texts)}." if texts else ""


NO_NOTES = Footnotes()


def footnotes(tables: Sequence[AnyTable]) -> Footnotes:
    """Collect the notes of two or more of these tables, in the order in which they are met."""
    counts = Counter(note for table in tables for note in dict.fromkeys(table.notes))
    return Footnotes(tuple(note for note, count in counts.items() if count > 1))


def mark_of(note: str) -> str:
    """Return the mark of a note: † for the published column, * for slips."""
    if note.startswith("Published:"):
        return "†"
    return "*" if note.startswith("Published ") else ""


def with_mark(note: str) -> str:
    """Return a note after its mark."""
    return f"{mark_of(note)} {note}".strip()


def mean_sd(measured: Measured, metric: str, digits: int, spread: str = "sd") -> str:
    """Write `62.31 ± 0.42`, ± the sd or (`t95`) half the 95 % interval; `62.31` for one seed; empty
    without a result."""
    result, factor = measured.summary, labels.scale(metric)
    if result is None:
        return ""
    text = labels.number(result.mean * factor, digits)
    after = result.sd if spread == "sd" else measured.half
    return text if after is None else f"{text} ± {labels.number(after * factor, digits)}"


def published_text(measured: Measured) -> str:
    """Write a number as printed, `*` where the print contradicts itself."""
    printed = measured.printed
    if printed is None:
        return "–"
    text = f"{printed.value:.{printed.places}f}"
    text += f" ± {printed.sd:.{printed.places}f}" if printed.sd is not None else ""
    return text + ("*" if printed.slip else "")


def improvement(measured: Measured) -> str:
    """Write `0.72 [0.40, 0.96]`, the chance that a run beats one of the baseline.

    Where all of one side beat all of the other, no resample differs: the bootstrap has no interval.
    """
    chance = measured.compared.improvement if measured.compared else None
    if chance is None:
        return ""
    if chance.low is None or chance.high is None or chance.low == chance.high:
        return f"{chance.probability:.2f}"
    return f"{chance.probability:.2f} [{chance.low:.2f}, {chance.high:.2f}]"


def grid(table: AnyTable) -> Grid:
    """Lay out the fields of a table, in printing order."""
    if isinstance(table, Sheet):
        return Grid(table.headers, table.labels, (False,) * len(table.headers), table.rows)
    columns = [
        column for i, metric in enumerate(table.metrics) for column in _columns(table, metric, i)
    ]
    if any(row.tuned is not None for row in table.rows):
        columns.append(("tuning trials", True, lambda row: Field(row.tuned or "")))
    columns.append(("n", False, _n))
    return _lay_out(table, columns)


def _lay_out(table: TableData, columns: Sequence[Column]) -> Grid:
    """Return the rows' labels and these columns."""
    rows = tuple(
        (*map(Field, row.labels), *(field(row) for _, _, field in columns)) for row in table.rows
    )
    names, count = labels.coordinate_names(table.headers), len(table.headers)
    further = (*(False,) * count, *(further for _, further, _ in columns))
    return Grid((*names, *(header for header, _, _ in columns)), count, further, rows)


def _columns(table: TableData, metric: str, place: int) -> list[Column]:
    """Return the columns of one metric, of which the first one's come first."""
    digits, further = table.recipe.digits, place > 0
    name = labels.metric_name(metric)

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
        return Field(labels.with_interval(gap.mean, gap.low, gap.high, metric, digits))

    def format_effect_size(row: TableRow) -> Field:
        comparison = row.measured[metric].compared
        dz = comparison.dz if comparison else None
        return Field("" if dz is None else labels.number(dz, 2))

    def format_published(row: TableRow) -> Field:
        result = row.measured[metric]
        slip = result.printed.slip if result.printed else None
        return Field(published_text(result), hint=slip or "")

    def format_gap_to_published(row: TableRow) -> Field:
        """Write the measured mean less the printed number, in the unit of the print."""
        printed, result = row.measured[metric].printed, row.measured[metric].summary
        if printed is None or result is None:
            return Field("")
        return Field(labels.with_sign(result.mean * printed.scale - printed.value, digits))

    searched = table.recipe.kind == "search"
    columns: list[Column] = [(labels.metric_label(metric), further, value)]
    if not searched:
        columns.append((f"Δ {name} [95 %]", further, delta))
    if place == 0 and any(row.measured[metric].p_corrected is not None for row in table.rows):
        columns += [
            ("p (Holm)", True, lambda row: Field(labels.p_text(row.measured[metric].p_corrected))),
            ("d_z", True, format_effect_size),
            ("P(better) [95 %]", True, lambda row: Field(improvement(row.measured[metric]))),
        ]
    if table.recipe.published_column(metric) is not None:
        columns.append(("published†", further, format_published))
        if not searched:
            columns.append((f"{name} − published", True, format_gap_to_published))
    return columns


def mean_sd_grid(table: TableData) -> Grid:
    """Return the plain table: the labels, mean ± sd of each metric, and n."""

    def column(metric: str) -> Column:
        def value(row: TableRow) -> Field:
            result = row.measured[metric]
            return Field(mean_sd(result, metric, table.recipe.digits) or "–", bold=result.better)

        return labels.metric_label(metric), False, value

    return _lay_out(table, [*map(column, table.metrics), ("n", False, _n)])


def _n(row: TableRow) -> Field:
    text = str(row.n) if row.n == row.planned else f"{row.n} of {row.planned}"
    return Field(text if row.planned else "–", hint="; ".join(row.gaps))  # –: it is refused


def parts(whole: Grid) -> list[Grid]:
    """Return the table, and the second one with its further columns where it has any.

    Rows are the same in both, below the same labels.
    """
    first = [i for i, further in enumerate(whole.further) if not further]
    if not any(whole.further):
        return [chosen(whole, first)]
    second = [i for i, further in enumerate(whole.further) if further or i < whole.labels]
    return [chosen(whole, first), chosen(whole, second)]


def chosen(whole: Grid, keep: list[int]) -> Grid:
    """Return the columns at these places."""
    rows = tuple(tuple(row[i] for i in keep) for row in whole.rows)
    return Grid(tuple(whole.headers[i] for i in keep), whole.labels, (False,) * len(keep), rows)


def plain(table: AnyTable, shared: Footnotes = NO_NOTES) -> str:
    """Write a table for a terminal: the columns that are read first, aligned; notes below."""
    layout = parts(grid(table))[0]
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
    notes = [note for note in shared.own(table) if not note.startswith(EFFECT_SIZES)]
    notes += filter(None, [shared.reference(table)])
    title = [table.title] if table.title else []
    filled = _fill(notes, max(len(rule), 80))
    return "\n".join([*title, rule, body[0], rule, *body[1:], rule, *filled, ""])


def plain_notes(shared: Footnotes) -> str:
    """Write the notes of several tables, for the end of a terminal's report."""
    notes = [
        f"{i}. {with_mark(note)}"
        for i, note in enumerate(shared.shared, 1)
        if not note.startswith(EFFECT_SIZES)  # of columns that a terminal does not show
    ]
    return "\n".join(["Notes", *_fill(notes, 100), ""]) if notes else ""


def _fill(notes: list[str], width: int) -> list[str]:
    return [
        textwrap.fill(note, width, initial_indent="  ", subsequent_indent="    ") for note in notes
    ]


def markdown(table: AnyTable, shared: Footnotes = NO_NOTES) -> str:
    """Write a section: the table, the further columns in a second one, its own notes."""
    first, *second = [pipes(part) for part in parts(grid(table))]
    caption = [table.recipe.caption, ""] if table.recipe.caption else []
    more = [line for part in second for line in (FURTHER, "", *part, "")]
    notes = [f"- {_starred(note)}" for note in shared.own(table)]
    reference = ["", shared.reference(table)] if shared.numbers(table) else []
    return "\n".join(
        [f"### {table.title}", "", *caption, *first, "", *more, *notes, *reference, ""]
    )


def markdown_notes(shared: Footnotes) -> str:
    """Write the section of the notes of several tables."""
    notes = [f"{i}. {_starred(with_mark(note))}" for i, note in enumerate(shared.shared, 1)]
    return "\n".join(["## Notes", "", *notes, ""]) if notes else ""


def _starred(text: str) -> str:
    return f"\\{text}" if text.startswith("*") else text


def pipes(layout: Grid) -> list[str]:
    """Write the lines of a table, with signs that mean something to Markdown as they stand."""

    def line(fields: Sequence[Field]) -> str:
        texts = [MARKUP.sub(r"\\\g<0>", " ".join(field.text.split())) for field in fields]
        bold = [f"**{t}**" if f.bold else t for t, f in zip(texts, fields, strict=True)]
        return f"| {' | '.join(bold)} |"

    rule = [":--" if i < layout.labels else "--:" for i in range(len(layout.headers))]
    head = line([Field(header) for header in layout.headers])
    return [head, f"| {' | '.join(rule)} |", *map(line, layout.rows)]
