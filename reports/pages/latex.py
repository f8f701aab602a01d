"""A table as LaTeX: a `table` float with booktabs."""

from __future__ import annotations

from reports.pages.markup import grid, marked_notes, narrow
from reports.tables.model import AnyTable

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
}


def latex_text(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def latex(table: AnyTable) -> str:
    """A `table` float; needs `booktabs` and, for the check marks, `amssymb`."""
    layout = grid(table)
    headers, rows = narrow(layout)
    columns = "l" * layout.labels + "r" * (len(headers) - layout.labels)
    body = [
        " & ".join(
            rf"\textbf{{{latex_text(f.text)}}}" if f.best else latex_text(f.text) for f in row
        )
        + r" \\"
        for row in rows
    ]
    notes = r" \\ ".join(
        latex_text(f"{mark}{note}") for mark, note in marked_notes(table, wide=False)
    )
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,amssymb}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{latex_text(table.title)}. {latex_text(table.recipe.caption)}}}",
            rf"  \label{{tab:{table.key.replace('_', '-')}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            "    " + " & ".join(latex_text(h) for h in headers) + r" \\",
            r"    \midrule",
            *(f"    {line}" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            rf"  \par\footnotesize {notes}",
            r"\end{table}",
            "",
        ]
    )
