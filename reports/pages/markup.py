"""A table as plain text, Markdown, LaTeX (booktabs) and CSV.

The first metric is shown in full (mean ± sd, Δ with interval, p, published and, where there is
room, effect sizes); the others with mean ± sd and, where there is room, Δ. CSV has every number,
one line per row and metric.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from reports.tables.compared import EFFECT_SIZES
from reports.tables.labels import metric_label, metric_name, number, p_text, scale
from reports.tables.model import AnyTable, Field, Grid, Measured, Sheet, TableData, TableRow


def mean_sd(measured: Measured, metric: str, digits: int, spread: str = "sd") -> str:
    """`62.31 ± 0.42`, ± the sd or (`t95`) half the 95 % interval; `62.31` for one seed; empty
    without a result."""
    result = measured.summary
    if result is None:
        return ""
    factor = scale(metric)
    text = number(result.mean * factor, digits)
    after = result.sd if spread == "sd" else measured.half
    return text if after is None else f"{text} ± {number(after * factor, digits)}"


def delta(row: TableRow, metric: str, digits: int) -> str:
    """`+0.52 [+0.11, +0.93]`; `baseline`; without an interval where one seed gives none."""
    if row.baseline:
        return "baseline"
    difference = row.measured[metric].difference
    if difference is None:
        return ""
    factor = scale(metric)

    def signed(value: float) -> str:
        text = number(value * factor, digits)
        return text if text.startswith("−") else f"+{text}"

    if difference.low is None or difference.high is None:
        return signed(difference.mean)
    return f"{signed(difference.mean)} [{signed(difference.low)}, {signed(difference.high)}]"


def published_text(measured: Measured) -> str:
    """As printed, `*` where the print contradicts itself."""
    printed = measured.printed
    if printed is None:
        return "–"
    text = f"{printed.value:.{printed.places}f}"
    text += f" ± {printed.sd:.{printed.places}f}" if printed.sd is not None else ""
    return text + ("*" if printed.slip else "")


def improvement(measured: Measured) -> str:
    """`0.72 [0.40, 0.96]`, the chance that a run beats one of the baseline.

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


Column = tuple[str, bool, Callable[[TableRow], Field]]  # header, wide, field of a row


def grid(table: AnyTable) -> Grid:
    """The fields of a table, in printing order."""
    if isinstance(table, Sheet):
        return table.grid()
    columns = [column for i, metric in enumerate(table.metrics) for column in _of(table, metric, i)]
    if any(row.tuned is not None for row in table.rows):
        columns.append(
            (
                "tuning trials",
                False,
                lambda row: Field(row.tuned or ""),
            )
        )
    columns.append(("n", False, _n))
    rows = tuple(
        (*map(Field, row.labels), *(field(row) for _, _, field in columns)) for row in table.rows
    )
    count = len(table.headers)
    return Grid(
        (*table.headers, *(header for header, _, _ in columns)),
        count,
        (*(False,) * count, *(wide for _, wide, _ in columns)),
        rows,
    )


def _of(table: TableData, metric: str, place: int) -> list[Column]:
    """The columns of one metric: all of them for the first, two for the others."""
    digits, first = table.recipe.digits, place == 0

    def value(row: TableRow) -> Field:
        result = row.measured[metric]
        text = mean_sd(result, metric, digits, table.recipe.spread)
        why = "; ".join(row.gaps)
        nothing = "missing" if row.planned else "refused"
        return Field(text or nothing, bool(text), result.best, "" if text else why)

    def printed(row: TableRow) -> Field:
        result = row.measured[metric]
        return Field(
            published_text(result), hint=result.printed.slip or "" if result.printed else ""
        )

    columns: list[Column] = [(metric_label(metric), False, value)]
    if table.recipe.kind != "search":
        columns.append(
            (
                f"Δ {metric_name(metric)} [95 %]",
                not first,
                lambda row: Field(delta(row, metric, digits)),
            )
        )
    if first and table.has(metric, "p_corrected"):
        columns += [
            ("p (Holm)", False, lambda row: Field(p_text(row.measured[metric].p_corrected))),
            ("d_z", True, lambda row: Field(_dz(row.measured[metric]))),
            ("P(better) [95 %]", True, lambda row: Field(improvement(row.measured[metric]))),
        ]
    if table.recipe.published_column(metric) is not None:
        columns.append(("published†", False, printed))
    return columns


def _n(row: TableRow) -> Field:
    text = str(row.n) if row.n == row.planned else f"{row.n} of {row.planned}"
    if row.planned == 0:  # a combination that is refused
        text = "–"
    return Field(text, hint="; ".join(row.gaps))


def narrow(whole: Grid) -> tuple[list[str], list[list[Field]]]:
    keep = [i for i, wide in enumerate(whole.wide) if not wide]
    return [whole.headers[i] for i in keep], [[row[i] for i in keep] for row in whole.rows]


def plain(table: AnyTable) -> str:
    """For a terminal: aligned columns under one rule, notes below."""
    layout = grid(table)
    headers, rows = narrow(layout)
    lines = [headers, *([field.text for field in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]

    def joined(line: list[str]) -> str:
        padded = [
            text.ljust(w) if i < layout.labels else text.rjust(w)
            for i, (text, w) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    rule = "─" * len(joined(["x" * w for w in widths]))
    body = [joined(line) for line in lines]
    title = [table.title] if table.title else []
    width = max(len(rule), 80)
    notes = [
        textwrap.fill(f"{mark}{note}", width, initial_indent="  ", subsequent_indent="    ")
        for mark, note in marked_notes(table, wide=False)
    ]
    return "\n".join([*title, rule, body[0], rule, *body[1:], rule, *notes]) + "\n"


def marked_notes(table: AnyTable, *, wide: bool = True) -> list[tuple[str, str]]:
    """Notes with their marks: † for the published column, * for slips. wide: with those on wide
    columns."""
    marked = []
    for note in table.notes:
        if note.startswith(EFFECT_SIZES) and not wide:
            continue
        mark = "† " if note.startswith("Published:") else ""
        mark = "* " if note.startswith("Published ") else mark
        marked.append((mark, note))
    return marked


def markdown(table: AnyTable) -> str:
    layout = grid(table)

    def line(texts: list[str]) -> str:
        return (
            "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in texts) + " |"
        )

    rule = [":--" if i < layout.labels else "--:" for i in range(len(layout.headers))]
    body = [line([f"**{f.text}**" if f.best else f.text for f in row]) for row in layout.rows]
    caption = [table.recipe.caption, ""] if table.recipe.caption else []
    notes = [f"- {mark.replace('*', chr(92) + '*')}{note}" for mark, note in marked_notes(table)]
    head = [f"### {table.title}", "", *caption, line(list(layout.headers)), line(rule)]
    return "\n".join([*head, *body, "", *notes, ""])
