"""The tables set by LaTeX, in one column and in two: nothing overfull, nothing swallowed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from reports.pages import latex
from reports.pages.footnotes import footnotes
from reports.pages.latex import COLUMN, PAGE
from reports.published import papers
from tests.needs import needed
from tests.reports.pages import wide

HEAD = r"""\documentclass[%s]{article}
\usepackage{booktabs,threeparttable,adjustbox,amssymb}
\overfullrule=5pt
\begin{document}
"""
CLASSES = ("10pt", "10pt,twocolumn")


def written() -> dict[str, str]:
    tables = wide.tables()
    shared = footnotes(tables)
    texts = {}
    for table in tables:
        texts[table.key] = latex.latex(table, shared)
        more = latex.further(table, shared)
        assert more is not None
        texts[f"{table.key}_more"] = more
    notes = latex.notes(shared)
    assert notes is not None
    return {**texts, "notes": notes}


def compiled(folder: Path, options: str, body: str) -> str:
    """LaTeX's log of a document with this body."""
    program = needed("pdflatex", "texlive-latex-extra")
    (folder / "made.tex").write_text(HEAD % options + body + "\n\\end{document}\n", "utf-8")
    done = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", "made.tex"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def told(folder: Path) -> str:
    """The words of what was set."""
    program = needed("pdftotext", "poppler-utils")
    done = subprocess.run(
        [program, "-layout", "made.pdf", "-"], cwd=folder, capture_output=True, check=True
    )
    return " ".join(done.stdout.decode("utf-8").split())


@pytest.mark.parametrize("options", CLASSES)
def test_tables_fit_and_nothing_is_swallowed(options: str, tmp_path: Path) -> None:
    log = compiled(tmp_path, options, "\n".join([*written().values()]))
    boxes = re.findall(r"Overfull \\hbox \((\d+\.\d+)pt", log)
    assert boxes == []
    assert "multiply defined" not in log
    text = told(tmp_path)
    slip = next(note for note in wide.tables()[0].notes if note.startswith("Published 65.96"))
    for words in (f"*Published {slip[10:24]}", "*starred*", "[bracketed] first", "65.96"):
        assert words in text, words


def test_the_test_sees_what_is_overfull(tmp_path: Path) -> None:
    """So that the test above cannot pass by finding nothing."""
    log = compiled(tmp_path, "10pt", r"\noindent\hbox to 500pt{\hrulefill}")
    assert "Overfull \\hbox" in log


def test_labels_name_the_table_once() -> None:
    labels = re.findall(r"\\label\{(.*?)\}", "".join(written().values()))
    assert labels == [
        "tab:rows",
        "tab:rows-more",
        "tab:again",
        "tab:again-more",
        "tab:searched",
        "tab:searched-more",
    ]


def test_no_line_break_stands_before_what_it_would_take_for_its_own() -> None:
    """`\\\\*` and `\\\\[…]` are LaTeX's own: the sign after the break would be gone."""
    for text in written().values():
        assert not re.search(r"\\\\\s*(\*|\[)", text)


def test_further_metrics_stand_below_each_other_rather_than_shrink() -> None:
    for name, text in written().items():
        for block in re.findall(r"\\begin\{tabular\}\{@\{\}(\w+)@\{\}\}", text):
            assert len(block) >= 2, name
    assert written()["table_rows_more"].count(r"\begin{tabular}") > 1
    assert COLUMN < PAGE


def test_notes_of_several_tables_are_written_once() -> None:
    texts = written()
    assert sum(text.count("paired by seed, with its") for text in texts.values()) == 1
    assert "Notes 1--" in texts["table_rows"] and "Notes 1--" in texts["table_again"]


@pytest.mark.parametrize("name", ["ddml/table4", "idml/table4"])
def test_signs_of_papers_are_known(name: str) -> None:
    """What stands in a published table's words is set as LaTeX, not left to its fonts."""
    table = papers.table(name)
    words = latex.latex_text(f"{table.paper} {table.source} {' '.join(table.columns)}")
    assert words.isascii(), words
