"""A table as plain text, Markdown, LaTeX (booktabs) and CSV.

The first metric is shown in full (mean ± sd, Δ with interval, p, published); the others with
mean ± sd and, where there is room, Δ. CSV has every number, one line per row and metric.
"""

from __future__ import annotations

import csv
import io
import textwrap
from dataclasses import dataclass

from reports.names import metric_label, metric_name, number, scale
from reports.tables import Measured, TableData, TableRow


@dataclass(frozen=True)
class Field:
    """One printed field: its text, whether it is a number with runs behind it, and its marks."""

    text: str
    measured: bool = False
    best: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Grid:
    """Headers and fields. `wide` columns are left out of plain text and LaTeX."""

    headers: tuple[str, ...]
    labels: int
    wide: tuple[bool, ...]
    rows: tuple[tuple[Field, ...], ...]


def mean_sd(measured: Measured, metric: str, digits: int) -> str:
    """`62.31 ± 0.42`; `62.31` for one seed; empty without a result."""
    found = measured.summary
    if found is None:
        return ""
    factor = scale(metric)
    text = number(found.mean * factor, digits)
    return text if found.sd is None else f"{text} ± {number(found.sd * factor, digits)}"


def delta(row: TableRow, metric: str, digits: int) -> str:
    """`+0.52 [+0.11, +0.93]`; `baseline`; without an interval where one seed gives none."""
    if row.baseline:
        return "baseline"
    found = row.measured[metric].difference
    if found is None:
        return ""
    factor = scale(metric)

    def signed(value: float) -> str:
        text = number(value * factor, digits)
        return text if text.startswith("−") else f"+{text}"

    if found.low is None or found.high is None:
        return signed(found.mean)
    return f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"


def published_text(measured: Measured) -> str:
    """As printed, `*` where the print contradicts itself."""
    printed = measured.printed
    if printed is None:
        return "–"
    places = 2 if printed.sd is not None else 1
    text = f"{printed.value:.{places}f}"
    text += f" ± {printed.sd:.2f}" if printed.sd is not None else ""
    return text + ("*" if printed.slip else "")


def p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def grid(table: TableData) -> Grid:
    """The fields of a table, in printing order."""
    digits = table.recipe.digits
    headers, wide = list(table.headers), [False] * len(table.headers)
    compared = table.recipe.kind != "search"
    for i, metric in enumerate(table.metrics):
        headers.append(metric_label(metric))
        wide.append(False)
        if compared:
            headers.append(f"Δ {metric_name(metric)} [95 %]")
            wide.append(i > 0)
            if i == 0 and table.has(metric, "p_corrected"):
                headers.append("p (Holm)")
                wide.append(False)
        if table.recipe.published_column(metric) is not None:
            headers.append("published†")
            wide.append(False)
    headers.append("n")
    wide.append(False)
    return Grid(
        tuple(headers), len(table.headers), tuple(wide),
        tuple(_fields(table, row, digits) for row in table.rows),
    )  # fmt: skip


def _fields(table: TableData, row: TableRow, digits: int) -> tuple[Field, ...]:
    fields = [Field(label) for label in row.labels]
    why = "; ".join(row.gaps)
    for i, metric in enumerate(table.metrics):
        found = row.measured[metric]
        text = mean_sd(found, metric, digits)
        status = "failed" if "failed" in why else "missing"
        fields.append(Field(text or status, bool(text), found.best, why))
        if table.recipe.kind != "search":
            fields.append(Field(delta(row, metric, digits)))
            if i == 0 and table.has(metric, "p_corrected"):
                fields.append(Field(p_text(found.p_corrected)))
        if table.recipe.published_column(metric) is not None:
            hint = found.printed.slip or "" if found.printed else ""
            fields.append(Field(published_text(found), hint=hint))
    n = str(row.n) if row.n == row.planned else f"{row.n} of {row.planned}"
    fields.append(Field(n, hint=why))
    return tuple(fields)


def _narrow(found: Grid) -> tuple[list[str], list[list[Field]]]:
    keep = [i for i, wide in enumerate(found.wide) if not wide]
    return [found.headers[i] for i in keep], [[row[i] for i in keep] for row in found.rows]


def plain(table: TableData) -> str:
    """For a terminal: aligned columns under one rule, notes below."""
    found = grid(table)
    headers, rows = _narrow(found)
    lines = [headers, *([field.text for field in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]

    def joined(line: list[str]) -> str:
        padded = [
            text.ljust(w) if i < found.labels else text.rjust(w)
            for i, (text, w) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    rule = "─" * len(joined(["x" * w for w in widths]))
    body = [joined(line) for line in lines]
    title = [table.title] if table.title else []
    width = max(len(rule), 80)
    notes = [
        textwrap.fill(f"{mark}{note}", width, initial_indent="  ", subsequent_indent="    ")
        for mark, note in marked_notes(table)
    ]
    return "\n".join([*title, rule, body[0], rule, *body[1:], rule, *notes]) + "\n"


def marked_notes(table: TableData) -> list[tuple[str, str]]:
    """Notes with their marks: † for the published column, * for slips."""
    marked = []
    for note in table.notes:
        mark = "† " if note.startswith("Published:") else ""
        mark = "* " if note.startswith("Published ") else mark
        marked.append((mark, note))
    return marked


def markdown(table: TableData) -> str:
    found = grid(table)

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    rule = [":--" if i < found.labels else "--:" for i in range(len(found.headers))]
    body = [line([f"**{f.text}**" if f.best else f.text for f in row]) for row in found.rows]
    caption = [table.recipe.caption, ""] if table.recipe.caption else []
    notes = [f"- {mark.replace('*', chr(92) + '*')}{note}" for mark, note in marked_notes(table)]
    head = [f"### {table.title}", "", *caption, line(list(found.headers)), line(rule)]
    return "\n".join([*head, *body, "", *notes, ""])


LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "✓": r"$\checkmark$", "±": r"$\pm$", "−": "$-$", "–": "--", "Δ": r"$\Delta$",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "†": r"$^\dagger$", "“": "``",
    "”": "''", "<": "$<$", ">": "$>$", "π": r"$\pi$", "λ": r"$\lambda$",
}  # fmt: skip


def latex_text(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def latex(table: TableData) -> str:
    """A `table` float; needs `booktabs` and, for the check marks, `amssymb`."""
    headers, rows = _narrow(grid(table))
    columns = "l" * len(table.headers) + "r" * (len(headers) - len(table.headers))
    body = [
        " & ".join(
            rf"\textbf{{{latex_text(f.text)}}}" if f.best else latex_text(f.text) for f in row
        )
        + r" \\"
        for row in rows
    ]
    notes = r" \\ ".join(latex_text(f"{mark}{note}") for mark, note in marked_notes(table))
    return "\n".join([
        r"% needs \usepackage{booktabs,amssymb}", r"\begin{table}", r"  \centering",
        rf"  \caption{{{latex_text(table.title)}. {latex_text(table.recipe.caption)}}}",
        rf"  \label{{tab:{table.key.replace('_', '-')}}}",
        rf"  \begin{{tabular}}{{{columns}}}", r"    \toprule",
        "    " + " & ".join(latex_text(h) for h in headers) + r" \\", r"    \midrule",
        *(f"    {line}" for line in body), r"    \bottomrule", r"  \end{tabular}",
        rf"  \par\footnotesize {notes}", r"\end{table}", "",
    ])  # fmt: skip


CSV_HEADERS = (
    "metric", "mean", "sd", "n", "planned", "delta", "delta_low", "delta_high", "delta_n",
    "delta_method", "p", "p_holm", "published", "published_sd", "published_unit",
    "published_slip", "run_ids", "gaps",
)  # fmt: skip


def to_csv(table: TableData) -> str:
    """Long form, unrounded: one line per row and metric; measured values on [0, 1]."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["cell", *table.headers, *CSV_HEADERS])
    for row in table.rows:
        for metric, m in row.measured.items():
            s, d, printed = m.summary, m.difference, m.printed
            numbers = [
                s.mean if s else None, s.sd if s else None, s.n if s else 0, row.planned,
                d.mean if d else None, d.low if d else None, d.high if d else None,
                d.n if d else None, d.method if d else None, m.p, m.p_corrected,
                printed.value if printed else None, printed.sd if printed else None,
                "percent" if printed and printed.scale != 1 else None,
                printed.slip if printed else None, " ".join(row.run_ids), "; ".join(row.gaps),
            ]  # fmt: skip
            writer.writerow([row.cell, *row.labels, metric, *numbers])
    return out.getvalue()
