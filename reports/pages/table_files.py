"""Write tables as files for other programs: CSV and LaTeX.

CSV has unrounded numbers, one line for each row and metric.

LaTeX has floats with booktabs that fit one column or two. A table too wide for a column of a
two-column article is a `table*`, which spans both (and is a `table` where there is one). What is
still too wide is made smaller (adjustbox), never cut. Each file holds one table with the notes on
its columns. It compiles alone, and an article reads it in with \\\\input.
"""

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

from reports.pages.markup import build_grid, build_plain_grid, get_note_mark, split_further_columns
from reports.tables.model import AnyTable, MeasuredMetric, Sheet, TableData, TableGrid, TableRow
from reports.tables.notes import EFFECT_SIZES

CSV_HEADERS = (
    *("metric", "mean", "sd", "n", "planned", "runs", "failed"),
    *("delta", "delta_low", "delta_high", "delta_n", "delta_method", "verdict", "same_as"),
    *("level", "chance_worse", "chance_within", "chance_better", "searches_sd"),
    *("delta_same_rates", "delta_same_rates_low", "delta_same_rates_high", "delta_same_rates_n"),
    *("p", "p_holm", "cohens_dz", "cliffs_delta"),
    *("p_better", "p_better_low", "p_better_high", "half_95", "tuning_trials"),
    *("published", "published_sd", "published_unit", "published_slip", "run_ids", "gaps"),
)
# first characters of a formula in a spreadsheet
SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def escape_formula(value: Any) -> Any:
    """Return a CSV file's field, with an apostrophe before a text that looks like a formula.

    A spreadsheet runs a formula, which can read other files, and names in a table come from specs
    and folders of pictures. A number with a sign, such as `-0.5`, stays as it is.
    """
    if not isinstance(value, str) or not value.startswith(SIGNS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def to_csv(table: AnyTable) -> str:
    """Write a table in long form: one line per row and metric; shares are not in per cent."""
    rows: list[Sequence[object]] = []
    if isinstance(table, Sheet):
        rows += [table.columns, *table.numbers]
    else:
        rows.append(["cell", *table.headers, *CSV_HEADERS])
        rows += [
            [row.cell, *row.labels, metric, *_collect_numbers(row, measured)]
            for row in table.rows
            for metric, measured in row.measured.items()
        ]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(escape_formula, row) for row in rows)
    return out.getvalue()


def _collect_numbers(row: TableRow, measured: MeasuredMetric) -> list[object]:
    """Return a CSV line's fields after `metric`; a row equal to another has the verdict `same`."""
    summary, pair, printed = measured.summary, measured.compared, measured.printed
    gap, chance, judgement, same_rates = None, None, None, measured.same_rates
    if pair is not None:  # the row compared with its baseline
        gap, chance, judgement = pair.difference, pair.improvement, pair.judgement
    return [
        *((summary.mean, summary.sd, summary.n) if summary else (None, None, 0)),
        *(row.planned, row.runs, row.failed),
        *((gap.mean, gap.low, gap.high, gap.n, gap.method) if gap else (None,) * 5),
        *((judgement.call or "same", judgement.same_as) if judgement else (None, None)),
        pair.level if pair else None,
        *((pair.chances if pair else None) or (None,) * 3),
        pair.searches_sd if pair else None,
        *((same_rates.mean, same_rates.low, same_rates.high) if same_rates else (None,) * 3),
        same_rates.n if same_rates else None,
        *((pair.permutation, pair.p, pair.dz, pair.delta) if pair else (None,) * 4),
        *((chance.probability, chance.low, chance.high) if chance else (None,) * 3),
        *(measured.half, row.tuning),
        *((printed.value, printed.sd) if printed else (None, None)),
        "percent" if printed and printed.scale != 1 else None,
        printed.slip if printed else None,
        *(" ".join(row.run_ids), "; ".join(row.gaps)),
    ]


GREEK = "alpha beta gamma delta zeta eta theta kappa lambda mu nu xi pi rho sigma tau chi psi omega"
LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"${sign}$" for sign in "<|>"},
    **dict(zip("αβγδζηθκλμνξπρστχψω", (rf"$\{name}$" for name in GREEK.split()), strict=True)),
    **{"ε": r"$\epsilon$", "φ": r"$\varphi$", "Γ": r"$\Gamma$", "Δ": r"$\Delta$"},
    **{"Θ": r"$\Theta$", "Λ": r"$\Lambda$", "Σ": r"$\Sigma$", "Φ": r"$\Phi$", "Ω": r"$\Omega$"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"✓": r"$\checkmark$", "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$"},
    **{"→": r"$\to$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "†": r"$^\dagger$"},
    **{"≤": r"$\le$", "≥": r"$\ge$", "≈": r"$\approx$", "∞": r"$\infty$", "‖": r"$\|$"},
    **{"²": "$^2$", "₂": "$_2$", "√": r"$\surd$", "½": "$1/2$", "…": r"\dots{}"},
    **{"–": "--", "—": "---", "“": "``", "”": "''", '"': "''", "‘": "`", "’": "'"},
}
PACKAGES = "booktabs,adjustbox,amssymb"
OPENING = (
    rf"% Compile this file by itself, or read it into an article with \usepackage{{{PACKAGES}}}",
    r"% by \input.",
    # Inside a document LaTeX has made \@nodocument the same as \relax.
    r"\expandafter\ifx\csname @nodocument\endcsname\relax\let\closetable\relax\else",
    rf"\documentclass{{article}}\usepackage{{{PACKAGES}}}\begin{{document}}",
    r"\def\closetable{\end{document}}\fi",
)
# starts of the notes on columns that a plain table does not have
NOT_PLAIN = ("Δ", "Published", "Measured numbers are", "±:", EFFECT_SIZES)
COLUMN_WIDTH = 54  # characters in a column of a two-column article, 230 pt at 4.25 pt each
GAP = 1.4  # characters between two columns of a table


def escape_latex(text: str) -> str:
    """Replace special characters, and those that LaTeX fonts lack, by commands."""
    return "".join(LATEX.get(character, character) for character in text)


def format_latex(table: AnyTable) -> str:
    """Return the LaTeX file of the main columns with their notes."""
    notes = [note for note in table.notes if not note.startswith(EFFECT_SIZES)]
    return _build_latex_file(table, split_further_columns(build_grid(table))[0], notes)


def format_plain_latex(table: TableData) -> str:
    """Return the LaTeX file of mean ± sd of each metric and n."""
    notes = [note for note in table.notes if not note.startswith(NOT_PLAIN)]
    return _build_latex_file(table, build_plain_grid(table), notes, unit=table.unit)


def _build_latex_file(
    table: AnyTable, grid: TableGrid, notes: Sequence[str], *, unit: str = ""
) -> str:
    """Return the text of a LaTeX file of one table: caption, label, tabular and notes.

    unit: what n counts, for a plain table; empty for another table.
    """
    title = f"{table.title}: mean ± sd over {unit}s" if unit else table.title
    caption = [title, table.recipe.caption] if table.recipe.caption else [title]
    label = table.key.removeprefix("table_").replace("_", "-") + ("-plain" if unit else "")
    environment = "table" if _measure_width(grid) <= COLUMN_WIDTH else "table*"
    lines = [
        *OPENING,
        rf"\begin{{{environment}}}",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"  \caption{{{escape_latex('. '.join(text.rstrip('.') for text in caption))}.}}",
        rf"  \label{{tab:{label}}}",
        r"  \begin{adjustbox}{max width=\linewidth}",
        *(f"    {line}" for line in _format_tabular(grid)),
        r"  \end{adjustbox}\par\smallskip",
    ]
    if notes:
        marked = [rf"    {escape_latex(f'{get_note_mark(note)}{note}')}\par" for note in notes]
        lines += [r"  \begin{minipage}{\linewidth}\raggedright", *marked, r"  \end{minipage}"]
    return "\n".join([*lines, rf"\end{{{environment}}}", r"\closetable", ""])


def _format_tabular(grid: TableGrid) -> list[str]:
    """Return the lines of a LaTeX tabular.

    Headers are broken before a unit, an interval or a part of a path, so that columns are as wide
    as their numbers. `{}` precedes a row that begins with `*` or `[`, which the row break `\\\\`
    above would take as its argument.
    """
    alignments = "l" * grid.labels + "r" * (len(grid.headers) - grid.labels)
    headers = []
    for text, alignment in zip(grid.headers, alignments, strict=True):
        lines = [escape_latex(line) for line in _break_header(text)]
        stacked = r"\\{}".join(lines)
        headers.append(stacked if len(lines) == 1 else rf"\shortstack[{alignment}]{{{stacked}}}")
    rows = []
    for row in grid.rows:
        texts = [(escape_latex(field.text), field.bold) for field in row]
        line = " & ".join(rf"\textbf{{{text}}}" if bold else text for text, bold in texts)
        rows.append(f"{'{}' if line.startswith(('*', '[')) else ''}{line} \\\\")
    return [
        rf"\begin{{tabular}}{{@{{}}{alignments}@{{}}}}",
        r"\toprule",
        f"{' & '.join(headers)} \\\\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _break_header(text: str) -> list[str]:
    """Split a header after a comma, and before a part of a path or an interval."""
    return re.split(r"(?<=,) |(?<=[a-z]\.)(?=[a-z])| (?=\[)", text)


def _measure_width(grid: TableGrid) -> float:
    """Return the width of a table in characters, with gaps."""
    heads = [max(map(len, _break_header(header))) for header in grid.headers]
    columns = zip(heads, *([len(field.text) for field in row] for row in grid.rows), strict=True)
    return float(sum(max(column) for column in columns)) + GAP * len(heads)
