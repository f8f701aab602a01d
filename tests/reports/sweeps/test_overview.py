"""Several sweeps at a glance: rows of pages' tables, a picture, a block of a Markdown file."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.errors import ReportError
from reports.pages import markup
from reports.pages.markup import collect_footnotes
from reports.readme import fill_block as copied
from reports.sweeps.overview import (
    Comparison,
    Overview,
    Page,
    collect_lines,
    draw_overview_plot,
    drop_neutral_rows,
    fill_block,
    format_overview,
    read_page,
)
from reports.tables.build import build_all
from reports.tables.verdict import judge_tables
from tests.reports.made import METRIC, frame

TITLE = "Each at its best"
HEAD = """- Sweep: {name} (0123456789ab)
- First started: 2026-11-22 15:41 UTC
- Data set: made
- Commit: 0123456789abcdef
- Device: cpu
- Threads: 1
"""


def page(at: dict[str, float], folder: Path, name: str = "one", metric: str = METRIC) -> Page:
    """Of a sweep that gives each row its level, through report and page as a user makes them."""
    made = frame(
        "compare",
        [{"variant": row} for row in at],
        lambda where, seed: 0.5 + 0.001 * seed + at[where["variant"]] * (1 + 0.01 * seed),
        seeds=8,
        names=[*at],
        metric=metric,
    )
    table = {"kind": "compare", "study": "s", "title": TITLE, "metrics": [metric]}
    made.document["report"] = {"tables": [table]}
    tables = build_all(made, made.recipe)
    notes = collect_footnotes(tables)
    text = "\n".join(
        [HEAD.format(name=name), *(markup.format_markdown_table(each, notes) for each in tables)]
    )
    block = f"<!-- report {name} -->\n<!-- table: {TITLE} -->\n<!-- end report -->\n"
    path = folder / f"{name}.md"
    path.write_text(
        copied(block, f"{text}\n{markup.format_markdown_notes(notes)}"), encoding="utf-8"
    )
    read = read_page(path)
    told = judge_tables(tables)
    back = read.read_verdicts(TITLE, metric)
    assert [each.call for each in drop_neutral_rows(back)] == [
        each.call for each in drop_neutral_rows(told)
    ]
    for mine, its in zip(back, told, strict=True):
        assert mine.difference is not None and its.difference is not None
        assert mine.n == its.n
        assert mine.difference.mean == pytest.approx(its.difference.mean, abs=5.1e-5)
        assert mine.difference.low == pytest.approx(its.difference.low, abs=5.1e-5)
    return read


@pytest.fixture
def pages(tmp_path: Path) -> dict[str, Page]:
    return {
        name: page({"plain": 0.0, "_ddml_": shift}, tmp_path, name)
        for name, shift in (("one", 0.02), ("two", -0.03))
    }


OVERVIEW = Overview(
    picture="all.svg",
    comparisons=tuple(
        Comparison(sweep=name, table=TITLE, method=name.upper(), setup="heads", metric=METRIC)
        for name in ("one", "two")
    ),
)


def test_each_row_stands_with_its_difference_and_its_verdict(
    pages: dict[str, Page],
) -> None:
    text = format_overview(collect_lines(OVERVIEW, pages.__getitem__), "all.svg")
    rows = [line for line in text.splitlines() if line.startswith(("| ONE", "| TWO"))]
    assert rows == [
        "| ONE | heads | \\_ddml\\_ |  | +2.07 [+2.03, +2.11] | 8 | better (p = 0.008) |",
        "| TWO | heads | \\_ddml\\_ |  | −3.10 [−3.17, −3.04] | 8 | worse (p = 0.008) |",
    ]
    assert text.startswith("![Every method against its baseline](all.svg)")
    assert "Sweeps: one (0123456789ab), two (0123456789ab)." in text


def test_the_picture_has_all_of_them(pages: dict[str, Page], tmp_path: Path) -> None:
    for name in ("first", "second"):
        draw_overview_plot(collect_lines(OVERVIEW, pages.__getitem__), tmp_path / f"{name}.svg")
    made = (tmp_path / "first.svg").read_bytes()
    assert made.startswith(b"<?xml") and made == (tmp_path / "second.svg").read_bytes()


def test_what_there_is_not_is_told(pages: dict[str, Page], tmp_path: Path) -> None:
    for field, value, told in (
        ("table", "Best", "page of one has no table 'Best', only Each"),
        ("metric", "test/nmi", r"no column 'NMI, test \(%\)' .*, only variant"),
        ("rows", ("n",), "no row 'n', only _ddml_"),
    ):
        wrong = OVERVIEW.comparisons[0].model_copy(update={field: value})
        with pytest.raises(ReportError, match=told):
            collect_lines(OVERVIEW.model_copy(update={"comparisons": (wrong,)}), pages.__getitem__)
    with pytest.raises(ReportError, match=r"no page .*gone\.md"):
        read_page(tmp_path / "gone.md")
    (tmp_path / "empty.md").write_text("# Not yet\n", encoding="utf-8")
    with pytest.raises(ReportError, match="no filled"):
        read_page(tmp_path / "empty.md")
    before = "# ablate\n<!-- overview -->\nold\n<!-- end overview -->\nrest\n"
    assert fill_block(before, "new") == before.replace("old", "new")
    with pytest.raises(ReportError, match="no `<!-- overview -->`"):
        fill_block("# ablate\n", "new")


def test_metrics_that_differ_have_tables_of_their_own(
    pages: dict[str, Page], tmp_path: Path
) -> None:
    one, two = OVERVIEW.comparisons
    pages["two"] = page({"plain": 0.0, "m": 0.02}, tmp_path, "two", "test/recall_at_1")
    other = two.model_copy(update={"metric": "test/recall_at_1"})
    asked = OVERVIEW.model_copy(update={"comparisons": (one, other, one)})
    text = format_overview(collect_lines(asked, pages.__getitem__), "all.svg").splitlines()
    headers = [line.split(" | ")[4] for line in text if line.startswith("| method")]
    assert headers == ["Δ MAP@R, validation (%) [95 %]", "Δ Recall@1, test (%) [95 %]"]
    rows = [line[2:5] for line in text if line.startswith(("| ONE", "| TWO"))]
    assert rows == ["ONE", "ONE", "TWO"]


@pytest.mark.parametrize("rows", [(), ("m",)])
def test_a_row_whose_best_is_neutral_stands_there_once(
    rows: tuple[str, ...], tmp_path: Path
) -> None:
    """It is the best of `m`, and its best other cell loses."""
    made = page({"plain": 0.0, "m": 0.0, "m, not neutral": -0.03, "other": 0.02}, tmp_path)
    only = OVERVIEW.comparisons[0].model_copy(update={"rows": rows})
    asked = OVERVIEW.model_copy(update={"comparisons": (only,)})
    text = format_overview(collect_lines(asked, lambda _: made), "all.svg")
    found = [line.split(" | ")[2:5] for line in text.splitlines() if line.startswith("| ONE")]
    assert found[0][:2] == ["m", "neutral"] and found[0][2].startswith("−3.10 ")
    assert [row[0] for row in found] == (["m"] if rows else ["m", "other"])
    assert "the row is then its best other cell" in text
