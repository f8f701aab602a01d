"""A table as LaTeX: floats with booktabs and threeparttable that fit one column or two.

A table too wide for a column of a two-column article is a `table*`, which spans both (and is a
`table` where there is one). Further metrics that are too wide for one column stand below each other
under the same rows. What is still too wide is made smaller (adjustbox), never cut.
"""

from __future__ import annotations

import re

from reports.pages.footnotes import Footnotes, mark_of
from reports.pages.markup import chosen, grid, parts
from reports.tables.model import AnyTable, Field, Grid

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "✓": r"$\checkmark$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "†": r"$^\dagger$",
    "“": "``",
    "”": "''",
    "<": "$<$",
    "|": "$|$",
    '"': "''",
    ">": "$>$",
    "π": r"$\pi$",
    "λ": r"$\lambda$",
    "δ": r"$\delta$",
    "ε": r"$\epsilon$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "ω": r"$\omega$",
    "²": "$^2$",
    "₂": "$_2$",
    "√": r"$\surd$",
    "×": r"$\times$",
    "→": r"$\to$",
    "…": r"\dots{}",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "‖": r"$\|$",
    "·": r"$\cdot$",
    "½": "$1/2$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "—": "---",
    "‘": "`",
    "’": "'",
    "Γ": r"$\Gamma$",
    "Θ": r"$\Theta$",
    "Λ": r"$\Lambda$",
    "Σ": r"$\Sigma$",
    "Φ": r"$\Phi$",
    "Ω": r"$\Omega$",
    "ζ": r"$\zeta$",
    "η": r"$\eta$",
    "θ": r"$\theta$",
    "μ": r"$\mu$",
    "ν": r"$\nu$",
    "ξ": r"$\xi$",
    "φ": r"$\varphi$",
    "χ": r"$\chi$",
    "ψ": r"$\psi$",
}
NEEDS = r"% needs \usepackage{booktabs,threeparttable,adjustbox,amssymb}"
COLUMN = 54  # signs of \footnotesize in a column of a two-column article, 230 pt at 4.25 pt
PAGE = 81  # the same in the one column of an article, 345 pt
GAP = 1.4  # of a column from the next, in signs


def latex_text(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def latex(table: AnyTable, shared: Footnotes | None = None) -> str:
    """The float of the columns that are read first, with the table's own notes."""
    return _float(table, parts(grid(table))[0], shared or Footnotes(), first=True)


def further(table: AnyTable, shared: Footnotes | None = None) -> str | None:
    """The float of further metrics and statistics; None without."""
    _, *second = parts(grid(table))
    return _float(table, second[0], shared or Footnotes(), first=False) if second else None


def notes(shared: Footnotes) -> str | None:
    """The notes of several tables, to be read in once, below the last of them; None without."""
    told = [rf"{i}.~{_marked(note)}" for i, note in enumerate(shared.shared, 1)]
    if not told:
        return None
    return "\n".join([r"\par\begingroup\footnotesize\noindent Notes:", *told, r"\par\endgroup", ""])


def _float(table: AnyTable, layout: Grid, shared: Footnotes, *, first: bool) -> str:
    caption = [table.title if first else f"{table.title}: further metrics and statistics"]
    if first and table.recipe.caption:
        caption.append(table.recipe.caption)
    label = table.key.removeprefix("table_").replace("_", "-") + ("" if first else "-more")
    blocks = [layout] if first else _blocks(layout)
    kind = "table" if max(map(_width, blocks)) <= COLUMN else "table*"
    items = [_item(mark, note) for mark, note in shared.own(table)] if first else []
    if first and shared.numbers(table):
        items.append(rf"\item {latex_text(shared.reference(table))}")
    below = [r"\begin{tablenotes}[flushleft]\footnotesize", *items, r"\end{tablenotes}"]
    lines = [
        NEEDS,
        rf"\begin{{{kind}}}",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"  \caption{{{latex_text('. '.join(part.rstrip('.') for part in caption))}.}}",
        rf"  \label{{tab:{label}}}",
    ]
    for block in blocks:
        lines += [
            r"  \begin{adjustbox}{max width=\linewidth}",
            r"  \begin{threeparttable}",
            *(f"    {line}" for line in _tabular(block)),
            *(f"    {line}" for line in (below if items else [])),
            r"  \end{threeparttable}",
            r"  \end{adjustbox}\par\smallskip",
        ]
    return "\n".join([*lines, rf"\end{{{kind}}}", ""])


def _blocks(layout: Grid) -> list[Grid]:
    """The columns in as many tables of the same rows as it takes to fit a page."""
    blocks: list[list[int]] = []
    labels = list(range(layout.labels))
    for column in range(layout.labels, len(layout.headers)):
        if blocks and _width(chosen(layout, [*blocks[-1], column])) <= PAGE:
            blocks[-1].append(column)
        else:
            blocks.append([*labels, column])
    return [chosen(layout, block) for block in blocks]


def _tabular(layout: Grid) -> list[str]:
    columns = "l" * layout.labels + "r" * (len(layout.headers) - layout.labels)
    heads = [
        _header(text, "l" if i < layout.labels else "r") for i, text in enumerate(layout.headers)
    ]
    return [
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        _line(heads),
        r"\midrule",
        *(_line([_cell(field) for field in row]) for row in layout.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _line(cells: list[str]) -> str:
    r"""A row. The `\\` before it would take a `*` or a `[` that it began with as its own."""
    text = " & ".join(cells)
    return f"{'{}' if text.startswith(('*', '[')) else ''}{text} \\\\"


def _cell(field: Field) -> str:
    text = latex_text(field.text)
    return rf"\textbf{{{text}}}" if field.best else text


def _header(text: str, side: str) -> str:
    """On several lines where it has a unit, an interval or a path: columns are as wide as their
    numbers."""
    lines = [latex_text(line) for line in _broken(text)]
    stacked = r"\\{}".join(lines)
    return stacked if len(lines) == 1 else rf"\shortstack[{side}]{{{stacked}}}"


def _broken(text: str) -> list[str]:
    return re.split(r"(?<=,) |(?<=[a-z]\.)(?=[a-z])| (?=\[)", text)


def _width(layout: Grid) -> float:
    """In signs, gaps counted."""
    columns = range(len(layout.headers))
    widest = [
        max(
            *(len(part) for part in _broken(layout.headers[i])),
            *(len(row[i].text) for row in layout.rows),
            0,
        )
        for i in columns
    ]
    return sum(widest) + GAP * len(widest)


def _item(mark: str, note: str) -> str:
    return (
        rf"\item[{latex_text(mark)}] {latex_text(note)}" if mark else rf"\item {latex_text(note)}"
    )


def _marked(note: str) -> str:
    return latex_text(f"{mark_of(note)}{note}")
