"""The numbers of the README and of search_spaces/results/*.md come from a report."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from reports.pages import markup
from reports.pages.markup import collect_footnotes
from reports.pages.verdict_text import read_verdicts
from reports.recipe import Table
from reports.stats.comparison_rule import decide
from reports.tables.build import build_table
from reports.tables.questions import format_difference
from tests.ablate.reference.recipes import find_recipe
from tests.reports.made import frame
from tests.reports.overview import Overview, collect_lines, format_overview
from tests.reports.overview import fill_block as overview_block
from tests.reports.readme import extract_section, fill_block
from trainables.words.errors import ReportError
from trainables.words.metrics import is_lower_better

ROOT = Path(__file__).parents[2]
SPACES = ROOT / "search_spaces"
RESULTS = SPACES / "results"
PAGES = [ROOT / "README.md", SPACES / "README.md", *sorted(RESULTS.glob("*.md"))]
BLOCK = re.compile(r"<!-- report (\w+) -->\n(.*?)<!-- end report -->", re.DOTALL)
TABLE = re.compile(r"<!-- table: (.*?) -->\n\*\*\1\*\*\n\n(.*?)(?=<!-- table|\Z)", re.DOTALL)
WITHDRAWN = re.compile(r"^<!-- withdrawn: (.*) -->\n\*\*", re.MULTILINE)
SOURCE = re.compile(
    r"Measured by sweep (\w+) \([0-9a-f]{12}\) at commit [0-9a-f]{12}, 2\d{3}-.*\n\n"
)

REPORT = """# Title

- Sweep: demo (0123)
- First started: 2026-01-02
- Data set: typefaces
- Commit: 0123456789abcdef
- Device: cpu
- Threads: 1

## Tables

### One

| a | b |
| - | - |
| 1 | 2 |

- note

### Two

| c |

- note
- of its own

## Figures
"""
README = """before
<!-- report demo -->
stale
<!-- table: One -->
| 9 | 9 |
<!-- end report -->
after
"""


def test_tables_replace_what_stood_there_and_again() -> None:
    once = fill_block(README, REPORT)
    assert "| 1 | 2 |" in once and "- note" in once
    assert "stale" not in once and "| 9 | 9 |" not in once and "| c |" not in once
    assert once.startswith("before\n") and once.endswith("<!-- end report -->\nafter\n")
    assert fill_block(once, REPORT) == once
    # a note of several tables is told once
    both = fill_block(README.replace("One -->", "One -->\n<!-- table: Two -->"), REPORT)
    assert both.count("- note") == 1 and both.index("- note") < both.index("| c |")
    assert "| c |\n\n- of its own\n<!-- end" in both
    # a page may have the first columns alone
    report = REPORT.replace(
        "| 1 | 2 |\n", "| 1 | 2 |\n\nFurther metrics and statistics:\n\n| d |\n"
    )
    short = fill_block(README.replace("<!-- t", "<!-- first columns alone -->\n<!-- t"), report)
    assert "| 1 | 2 |" in short and "| d |" not in short and "- note" not in short
    with pytest.raises(ReportError, match="One, Two"):
        fill_block(README.replace("table: One", "table: Three"), REPORT)
    with pytest.raises(ReportError, match="report demo"):
        fill_block("nothing", REPORT)


# --- what stands there --------------------------------------------------------------------------


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


CHANGED = "**The recipe has changed since this run.**"


def read_chain(path: Path) -> str:
    """The text of a spec and of those that it extends."""
    text = path.read_text(encoding="utf-8")
    base = yaml.safe_load(text).get("extends")
    return text + (read_chain(path.parent / base) if base else "")


def test_a_measured_table_stands_in_a_block_of_its_sweep() -> None:
    """With the sweep and the commit that it is of, under a title that its spec gives it."""
    index = (SPACES / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = dict(BLOCK.findall(text))
        assert text.count("<!-- report ") == text.count("<!-- end report -->") == len(blocks)
        measured = [line for line in rows(BLOCK.sub("", text)) if " ± " in line]
        assert not measured, f"{page.name}: measured numbers that no report gave"
        if page.name != "README.md":
            assert list(blocks) == [page.stem] and f"[{page.name}](results/{page.name})" in index
        for name, block in blocks.items():
            source = SOURCE.match(block)
            assert source is not None and source[1] == name, f"{page.name}: {block[:80]!r}"
            titles = re.findall(r"<!-- table: (.*?) -->", block)
            tables = TABLE.findall(block)
            assert titles and [title for title, _ in tables] == titles
            spec = read_chain(find_recipe(name))
            for title, table in tables:
                given = title.partition(": differences in ")[0]  # a matrix is a part of its table
                assert len(rows(table)) >= 3, title
                assert f'"{given}"' in spec or CHANGED in text, title


def test_the_readme_shows_what_the_pages_of_the_sweeps_do() -> None:
    """Each number is read from them again, and each verdict follows anew."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    recipe = (ROOT / "tests" / "reports" / "first_page.yaml").read_text(encoding="utf-8")
    overview = Overview.model_validate(yaml.safe_load(recipe))
    folder = RESULTS / "verdicts"
    lines = collect_lines(overview, cache(lambda name: read_verdicts(folder / f"{name}.json")))
    assert lines
    assert overview_block(text, format_overview(lines, overview.picture)) == text


NUMBERED_REPORT = REPORT.replace("- note\n\n", "- own\n\nNotes 1, 2, 4.\n\n", 1).replace(
    "## Figures", "## Notes\n\n1. first\n2. second\n3. third\n4. † fourth\n\n## Figures"
)


def test_notes_told_by_number_are_written_out_where_they_are_copied_to() -> None:
    """And those that `pages` writes are read back."""
    once = fill_block(README, NUMBERED_REPORT)
    assert "| 1 | 2 |\n\n- own\n- first\n- second\n- † fourth\n<!-- end" in once
    assert "third" not in once and "Notes 1" not in once
    alone = fill_block(README, NUMBERED_REPORT.replace("- own\n\nNotes 1, 2, 4.", "Note 3."))
    assert "| 1 | 2 |\n\n- third\n<!-- end" in alone

    levels = [{"variant": name} for name in ("plain", "ddml")]
    compared = frame("compare", levels, lambda at, seed: 0.5 + seed / 10)
    tables = [build_table(compared, Table(kind="compare", study="s", title=name)) for name in "ab"]
    shared = collect_footnotes(tables)
    assert len(shared) > 2
    parts = [markup.format_markdown_table(table, shared) for table in tables]
    copied = extract_section("\n".join([*parts, markup.format_markdown_notes(shared)]), "b")
    assert all(f"- {note}" in copied for note in shared)


def test_verdicts_of_pages_are_those_of_their_tables() -> None:
    """Each interval stands in the page's table, and each verdict follows from its interval."""
    files = sorted((RESULTS / "verdicts").glob("*.json"))
    assert len(files) >= 3
    for path in files:
        page = (RESULTS / f"{path.stem}.md").read_text(encoding="utf-8")
        tables = dict(TABLE.findall("".join(block for _, block in BLOCK.findall(page))))
        for verdict in read_verdicts(path).verdicts:
            gap = verdict.difference
            if gap is None or gap.low is None or gap.high is None:
                assert verdict.call in ("same", "open", "no result")
                continue
            decided = decide(gap, verdict.smallest, lower_is_better=is_lower_better(verdict.metric))
            assert verdict.call in (decided.call, "same") and verdict.small == decided.small
            if verdict.title in tables and not verdict.is_term:
                assert format_difference(verdict) in tables[verdict.title], verdict.label


def test_withdrawn_rows_have_no_verdict() -> None:
    """A page names the methods whose rows do not stand; overview and reference show verdicts."""
    marked = {page.stem: WITHDRAWN.findall(page.read_text(encoding="utf-8")) for page in PAGES}
    marked = {sweep: methods for sweep, methods in marked.items() if methods}
    assert {"networks", "few_images_10", "few_images_4"} <= marked.keys()
    for sweep, (methods,) in marked.items():
        path = RESULTS / "verdicts" / f"{sweep}.json"
        verdicts = read_verdicts(path).verdicts if path.is_file() else ()
        names = tuple(methods.split(", "))
        judged = [v.cell for v in verdicts if v.cell.casefold().startswith(names)]
        assert not judged, f"{path.name}: verdicts of withdrawn rows: {judged}"
