"""The tables set by LaTeX, in one column and in two: nothing overfull, nothing swallowed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from reports.pages import table_files
from tests.needs import needed
from tests.reports.pages import wide

HEAD = r"""\documentclass[%s]{article}
\usepackage{booktabs,adjustbox,amssymb}
\overfullrule=5pt
\begin{document}
"""
CLASSES = ("10pt", "10pt,twocolumn")


def written() -> dict[str, str]:
    texts = {}
    for table in wide.tables():
        texts[table.key] = table_files.format_latex(table)
        texts[f"{table.key}_plain"] = table_files.format_plain_latex(table)
    return texts


def run_latex(folder: Path, name: str) -> str:
    """Compile a file and return LaTeX's log."""
    program = needed("pdflatex", "texlive-latex-extra")
    done = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", name],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def compiled(folder: Path, options: str, body: str) -> str:
    """LaTeX's log of a document with this body."""
    (folder / "made.tex").write_text(HEAD % options + body + "\n\\end{document}\n", "utf-8")
    return run_latex(folder, "made.tex")


def told(folder: Path, name: str = "made") -> str:
    """The words of what was set."""
    program = needed("pdftotext", "poppler-utils")
    done = subprocess.run(
        [program, "-layout", f"{name}.pdf", "-"], cwd=folder, capture_output=True, check=True
    )
    return " ".join(done.stdout.decode("utf-8").split())


@pytest.mark.parametrize("options", CLASSES)
def test_tables_fit_and_nothing_is_swallowed(options: str, tmp_path: Path) -> None:
    texts = written()
    for name, text in texts.items():
        (tmp_path / f"{name}.tex").write_text(text, "utf-8")
    body = "\n".join(rf"\input{{{name}}}" for name in texts)
    log = compiled(tmp_path, options, body + "\nThe document goes on after them.")
    boxes = re.findall(r"Overfull \\hbox \((\d+\.\d+)pt", log)
    assert boxes == []
    assert "multiply defined" not in log
    text = told(tmp_path)
    slip = next(note for note in wide.tables()[0].notes if note.startswith("Published 65.96"))
    for words in (f"*Published {slip[10:24]}", "*starred*", "[bracketed] first", "65.96"):
        assert words in text, words
    assert "The document goes on after them." in text


def test_a_plain_table_has_means_and_deviations_alone() -> None:
    text = written()["table_rows_plain"]
    heads = text[text.index(r"\toprule") : text.index(r"\midrule")]
    assert "MAP@R" in heads and r"$\Delta$" not in text and "published" not in text
    rows = [line for line in text.splitlines() if line.strip().startswith("NormSoftmax &")]
    assert "".join(rows).count(r"54.20 $\pm$ 0.20") == len(wide.METRICS)
    assert rows[-1].endswith(r"& 3 \\")
