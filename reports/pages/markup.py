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

from reports.tables.labels import (
    coordinate_names,
    metric_label,
    metric_name,
    number,
    p_text,
    scale,
    with_interval,
)
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

    def own(self, table: AnyTable) -> list[tuple[str, str]]:
        """Return a table's other notes with their marks."""
        return [(mark_of(note), note) for note in table.notes if note not in self.shared]

    def reference(self, table: AnyTable) -> str:
        """Write `Notes 1–3, 5.`; empty without."""
        return _refer(self.numbers(table))


def footnotes(tables: Sequence[AnyTable]) -> Footnotes:
    """Collect the notes of two or more of these tables, in the order in which they are met."""
    counts = Counter(note for table in tables for note in dict.fromkeys(table.notes))
    return Footnotes(tuple(note for note, count in counts.items() if count > 1))


def mark_of(note: str) -> str:
    """Return the mark of a note: † for the published column, * for slips."""
    if note.startswith("Published:"):
        return "†"
    return "*" if note.startswith("Published ") else ""


def _refer(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for note in numbers:
        if spans and note == spans[-1][-1] + 1:
            spans[-1].append(note)
        else:
            spans.append([note])
    texts = [f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans]
    if len(numbers) == 1:
        return f"Note {numbers[0]}."
    return f"Notes {', '.join(texts)}." if texts else ""


def mean_sd(measured: Measured, metric: str, digits: int, spread: str = "sd") -> str:
    """Write `62.31 ± 0.42`, ± the sd or (`t95`) half the 95 % interval; `62.31` for one seed; empty
    without a result."""
    result = measured.summary
    if result is None:
        return ""
    factor = scale(metric)
    text = number(result.mean * factor, digits)
    after = result.sd if spread == "sd" else measured.half
    return text if after is None else f"{text} ± {number(after * factor, digits)}"


def delta(row: TableRow, metric: str, digits: int) -> str:
    """Write `+0.52 [+0.11, +0.93]`; `baseline`; without an interval where one seed gives none."""
    if row.baseline:
        return "baseline"
    difference = row.measured[metric].difference
    if difference is None:
        return ""
    return with_interval(difference.mean, difference.low, difference.high, metric, digits)


def published_text(measured: Measured) -> str:
    """Write a number as printed, `*` where the print contradicts itself."""
    printed = measured.printed
    if printed is None:
        return "–"
    text = f"{printed.value:.{printed.places}f}"
    text += f" ± {printed.sd:.{printed.places}f}" if printed.sd is not None else ""
    return text + ("*" if printed.slip else "")


def _off(measured: Measured, digits: int) -> str:
    """Write `−1.23`: the measured mean less the printed number, in the unit of the print."""
    printed, result = measured.printed, measured.summary
    if printed is None or result is None:
        return ""
    away = result.mean * printed.scale - printed.value
    text = number(away, digits)
    return text if text.startswith("−") else f"+{text}"


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


def _dz(measured: Measured) -> str:
    size = measured.compared.dz if measured.compared else None
    return "" if size is None else number(size, 2)


def grid(table: AnyTable) -> Grid:
    """Lay out the fields of a table, in printing order."""
    if isinstance(table, Sheet):
        return table.grid()
    columns = [column for i, metric in enumerate(table.metrics) for column in _of(table, metric, i)]
    if any(row.tuned is not None for row in table.rows):
        columns.append(("tuning trials", True, lambda row: Field(row.tuned or "")))
    columns.append(("n", False, _n))
    rows = tuple(
        (*map(Field, row.labels), *(field(row) for _, _, field in columns)) for row in table.rows
    )
    count = len(table.headers)
    return Grid(
        (*coordinate_names(table.headers), *(header for header, _, _ in columns)),
        count,
        (*(False,) * count, *(further for _, further, _ in columns)),
        rows,
    )


def _of(table: TableData, metric: str, place: int) -> list[Column]:
    """Return the columns of one metric, of which the first one's come first."""
    digits, further = table.recipe.digits, place > 0

    def value(row: TableRow) -> Field:
        result = row.measured[metric]
        text = mean_sd(result, metric, digits, table.recipe.spread)
        why = "; ".join(row.gaps)
        nothing = "missing" if row.planned else "refused"
        nothing = "–" if row.printed_only else nothing
        return Field(text or nothing, bool(text), result.better, "" if text else why)

    def printed(row: TableRow) -> Field:
        result = row.measured[metric]
        return Field(
            published_text(result), hint=result.printed.slip or "" if result.printed else ""
        )

    columns: list[Column] = [(metric_label(metric), further, value)]
    if table.recipe.kind != "search":
        columns.append(
            (
                f"Δ {metric_name(metric)} [95 %]",
                further,
                lambda row: Field(delta(row, metric, digits)),
            )
        )
    if place == 0 and table.has(metric, "p_corrected"):
        columns += [
            ("p (Holm)", True, lambda row: Field(p_text(row.measured[metric].p_corrected))),
            ("d_z", True, lambda row: Field(_dz(row.measured[metric]))),
            ("P(better) [95 %]", True, lambda row: Field(improvement(row.measured[metric]))),
        ]
    if table.recipe.published_column(metric) is not None:
        columns.append(("published†", further, printed))
        if table.recipe.kind != "search":
            columns.append(
                (
                    f"{metric_name(metric)} − published",
                    True,
                    lambda row: Field(_off(row.measured[metric], digits)),
                )
            )
    return columns


def mean_sd_grid(table: TableData) -> Grid:
    """Return the plain table: the labels, mean ± sd of each metric, and n."""

    def value(row: TableRow, metric: str) -> Field:
        result = row.measured[metric]
        return Field(mean_sd(result, metric, table.recipe.digits) or "–", bold=result.better)

    rows = tuple(
        (*map(Field, row.labels), *(value(row, metric) for metric in table.metrics), _n(row))
        for row in table.rows
    )
    headers = (*coordinate_names(table.headers), *map(metric_label, table.metrics), "n")
    return Grid(headers, len(table.headers), (False,) * len(headers), rows)


def _n(row: TableRow) -> Field:
    text = str(row.n) if row.n == row.planned else f"{row.n} of {row.planned}"
    if row.planned == 0:  # a combination that is refused
        text = "–"
    return Field(text, hint="; ".join(row.gaps))


def parts(whole: Grid) -> list[Grid]:
    """Return the table, and the second one with its further columns where it has any.

    Rows are the same in both, below the same labels.
    """
    first = [i for i, further in enumerate(whole.further) if not further]
    second = [i for i, further in enumerate(whole.further) if further or i < whole.labels]
    found = [chosen(whole, first)]
    return [*found, chosen(whole, second)] if any(whole.further) else found


def chosen(whole: Grid, keep: list[int]) -> Grid:
    """Return the columns at these places."""
    return Grid(
        tuple(whole.headers[i] for i in keep),
        whole.labels,
        (False,) * len(keep),
        tuple(tuple(row[i] for i in keep) for row in whole.rows),
    )


def plain(table: AnyTable, shared: Footnotes | None = None) -> str:
    """Write a table for a terminal: the columns that are read first, aligned; notes below."""
    shared = shared or Footnotes()
    layout = parts(grid(table))[0]
    lines = [list(layout.headers), *([field.text for field in row] for row in layout.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(layout.headers))]

    def joined(line: list[str]) -> str:
        padded = [
            text.ljust(w) if i < layout.labels else text.rjust(w)
            for i, (text, w) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    rule = "─" * len(joined(["x" * w for w in widths]))
    body = [joined(line) for line in lines]
    title = [table.title] if table.title else []
    notes = [f"{mark}{' ' * bool(mark)}{note}" for mark, note in shared.own(table) if _fits(note)]
    notes += [shared.reference(table)] if shared.numbers(table) else []
    width = max(len(rule), 80)
    return "\n".join([*title, rule, body[0], rule, *body[1:], rule, *_filled(notes, width)]) + "\n"


def plain_notes(shared: Footnotes) -> str:
    """Write the notes of several tables, for the end of a terminal's report."""
    notes = [f"{i}. {_marked(note)}" for i, note in enumerate(shared.shared, 1) if _fits(note)]
    return "\n".join(["Notes", *_filled(notes, 100)]) + "\n" if notes else ""


def _fits(note: str) -> bool:
    """Tell whether a note is of columns that a terminal shows."""
    return not note.startswith(EFFECT_SIZES)


def _filled(notes: list[str], width: int) -> list[str]:
    return [
        textwrap.fill(note, width, initial_indent="  ", subsequent_indent="    ") for note in notes
    ]


def _marked(note: str) -> str:
    return f"{mark_of(note)} {note}".strip()


def markdown(table: AnyTable, shared: Footnotes | None = None) -> str:
    """Write a section: the table, the further columns in a second one, its own notes."""
    shared = shared or Footnotes()
    first, *second = [pipes(part) for part in parts(grid(table))]
    caption = [table.recipe.caption, ""] if table.recipe.caption else []
    more = [line for part in second for line in (FURTHER, "", *part, "")]
    notes = [f"- {_starred(f'{mark} {note}'.strip())}" for mark, note in shared.own(table)]
    reference = ["", shared.reference(table)] if shared.numbers(table) else []
    return "\n".join(
        [f"### {table.title}", "", *caption, *first, "", *more, *notes, *reference, ""]
    )


def markdown_notes(shared: Footnotes) -> str:
    """Write the section of the notes of several tables."""
    notes = [f"{i}. {_starred(_marked(note))}" for i, note in enumerate(shared.shared, 1)]
    return "\n".join(["## Notes", "", *notes, ""]) if notes else ""


def _starred(text: str) -> str:
    return f"\\{text}" if text.startswith("*") else text


def pipes(layout: Grid) -> list[str]:
    """Write the lines of a table."""

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(" ".join(text.split()) for text in texts) + " |"

    rule = [":--" if i < layout.labels else "--:" for i in range(len(layout.headers))]
    texts = [[(_escaped(f.text), f.bold) for f in row] for row in layout.rows]
    body = [line([f"**{text}**" if bold else text for text, bold in row]) for row in texts]
    return [line([*map(_escaped, layout.headers)]), line(rule), *body]


def _escaped(text: str) -> str:
    """Write signs of Markdown as they stand: emphasis, code, HTML, columns."""
    return MARKUP.sub(r"\\\g<0>", text)
