"""Several sweeps at a glance: rows of named tables, a picture, a block of a Markdown file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.errors import ReportError
from reports.frame import Frame
from reports.sweeps.overview import Comparison, Overview, filled, lines, markdown, plot
from tests.reports.made import METRIC, frame

TABLE = {"kind": "compare", "study": "s", "title": "Each at its best", "metrics": [METRIC]}


def sweep(shift: float, seeds: int = 8) -> Frame:
    variants = [{"variant": name} for name in ("plain", "_ddml_")]
    made = frame(
        "compare",
        variants,
        lambda at, seed: 0.5 + 0.001 * seed + (shift if at["variant"] != "plain" else 0),
        seeds=seeds,
        names=["plain", "_ddml_"],
    )
    made.document["report"] = {"tables": [TABLE]}
    return made


SWEEPS = {"one": sweep(0.02), "two": sweep(-0.03)}
OVERVIEW = Overview(
    picture="all.svg",
    comparisons=tuple(
        Comparison(sweep=name, table="Each at its best", method=name.upper(), setup="heads")
        for name in SWEEPS
    ),
)


def test_each_row_stands_with_its_difference_and_its_verdict() -> None:
    text = markdown(lines(OVERVIEW, SWEEPS.__getitem__), "all.svg")
    rows = [line for line in text.splitlines() if line.startswith(("| ONE", "| TWO"))]
    assert rows == [
        "| ONE | heads | \\_ddml\\_ |  | +2.00 [+2.00, +2.00] | 8 | better (p = 0.008) |",
        "| TWO | heads | \\_ddml\\_ |  | −3.00 [−3.00, −3.00] | 8 | worse (p = 0.008) |",
    ]
    assert text.startswith("![Every method against its baseline](all.svg)")
    assert "Sweeps: made (000000000000)." in text


def test_the_picture_has_all_of_them(tmp_path: Path) -> None:
    for name in ("first", "second"):
        plot(lines(OVERVIEW, SWEEPS.__getitem__), tmp_path / f"{name}.svg")
    made = (tmp_path / "first.svg").read_bytes()
    assert made.startswith(b"<?xml") and made == (tmp_path / "second.svg").read_bytes()


def test_a_table_that_there_is_not_is_told() -> None:
    wrong = Comparison(sweep="one", table="Best", method="ONE", setup="heads")
    with pytest.raises(
        ReportError, match="found no comparison 'Best' in one; expected one of: Each"
    ):
        lines(OVERVIEW.model_copy(update={"comparisons": (wrong,)}), SWEEPS.__getitem__)


def test_only_its_block_is_written() -> None:
    before = "# ablate\n<!-- overview -->\nold\n<!-- end overview -->\nrest\n"
    assert filled(before, "new") == before.replace("old", "new")
    with pytest.raises(ReportError, match="found no `<!-- overview -->`"):
        filled("# ablate\n", "new")


def test_metrics_that_differ_have_tables_of_their_own() -> None:
    one, two = lines(OVERVIEW, SWEEPS.__getitem__)
    other = replace(two, verdict=replace(two.verdict, metric="test/recall_at_1"))
    text = markdown([one, other, one], "all.svg").splitlines()
    headers = [line.split(" | ")[4] for line in text if line.startswith("| method")]
    assert headers == ["Δ MAP@R, validation (%) [95 %]", "Δ Recall@1, test (%) [95 %]"]
    rows = [line[2:5] for line in text if line.startswith(("| ONE", "| TWO"))]
    assert rows == ["ONE", "ONE", "TWO"]


def with_neutral() -> Frame:
    """Neutral is the best of `m`, and its best other cell loses."""
    at = {"plain": 0.0, "m": 0.0, "m, not neutral": -0.03, "other": 0.02}
    made = frame(
        "compare",
        [{"variant": name} for name in at],
        lambda where, seed: 0.5 + 0.001 * seed + at[where["variant"]],
        seeds=8,
        names=[*at],
    )
    made.document["report"] = {"tables": [TABLE]}
    return made


@pytest.mark.parametrize("rows", [(), ("m",)])
def test_a_row_whose_best_is_neutral_stands_there_once(rows: tuple[str, ...]) -> None:
    only = OVERVIEW.comparisons[0].model_copy(update={"rows": rows})
    asked = OVERVIEW.model_copy(update={"comparisons": (only,)})
    text = markdown(lines(asked, lambda _: with_neutral()), "all.svg")
    found = [line.split(" | ")[2:5] for line in text.splitlines() if line.startswith("| ONE")]
    assert found[0] == ["m", "neutral", "−3.00 [−3.00, −3.00]"]
    assert [row[0] for row in found] == (["m"] if rows else ["m", "other"])
    assert "the row is then its best other cell" in text


def test_a_row_that_there_is_not_is_told() -> None:
    wrong = OVERVIEW.comparisons[0].model_copy(update={"rows": ("n",)})
    asked = OVERVIEW.model_copy(update={"comparisons": (wrong,)})
    with pytest.raises(ReportError, match=r"found no row 'n' .*; expected one of: m, other"):
        lines(asked, lambda _: with_neutral())
