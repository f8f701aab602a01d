"""Several sweeps at a glance: rows of their verdicts, a picture, a block of a Markdown file."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.pages.verdict_text import SweepVerdicts, format_verdicts, read_verdicts
from reports.tables.build import build_all
from reports.tables.verdict import judge_tables
from tests.reports.made import METRIC, frame
from tests.reports.overview import (
    Comparison,
    Overview,
    collect_lines,
    fill_block,
    format_overview,
)
from trainables.words.errors import ReportError

TITLE = "Each at its best"


def sweep(
    at: dict[str, float],
    folder: Path,
    name: str = "one",
    *,
    metric: str = METRIC,
    gains: dict[str, object] | None = None,
    data: str = "typefaces",
) -> SweepVerdicts:
    """Of a sweep that gives each row its level, through the file that its report writes."""
    made = frame(
        "compare",
        [{"variant": row} for row in at],
        lambda where, seed: 0.5 + 0.001 * seed + at[where["variant"]] * (1 + 0.01 * seed),
        seeds=8,
        names=[*at],
        metric=metric,
        params=lambda coords: {"data.name": data},
    )
    table = {"kind": "compare", "study": "s", "title": TITLE, "metrics": [metric]}
    table |= {"gains": gains or {}}
    made.document.update(report={"tables": [table]}, name=name, sweep_id="0123456789ab")
    verdicts = judge_tables(made, build_all(made, made.recipe))
    path = folder / f"{name}.json"
    path.write_text(format_verdicts(made, verdicts), "utf-8")
    read = read_verdicts(path)
    assert [*read.verdicts] == verdicts, "nothing is lost on the way"
    return read


@pytest.fixture
def sweeps(tmp_path: Path) -> dict[str, SweepVerdicts]:
    return {
        name: sweep({"plain": 0.0, "_ddml_": shift}, tmp_path, name)
        for name, shift in (("one", 0.02), ("two", -0.03))
    }


OVERVIEW = Overview(
    picture="all.svg",
    comparisons=tuple(
        Comparison(sweep=name, table=TITLE, method=name.upper(), setup="heads", note=f"of {name}")
        for name in ("one", "two")
    ),
)


def test_each_row_stands_with_its_difference_and_its_verdict(
    sweeps: dict[str, SweepVerdicts],
) -> None:
    text = format_overview(collect_lines(OVERVIEW, sweeps.__getitem__), "all.svg")
    rows = [line for line in text.splitlines() if line.startswith(("| ONE", "| TWO"))]
    assert [row.split(" | ")[2] for row in rows] == ["\\_ddml\\_"] * 2
    assert rows[0].endswith("| 8 seeds | better | of one |")
    assert rows[1].endswith("| 8 seeds | worse | of two |")
    assert [row.split(" | ")[3][:6] for row in rows] == ["+2.07 ", "−3.10 "]
    assert text.startswith("![Differences to the plain loss, with intervals](all.svg)")
    assert "Sweeps: one (0123456789ab), two (0123456789ab)." in text
    assert "There are 2 families" in text


@pytest.mark.parametrize("data", ["cars196", "typefaces"])
def test_a_printed_gain_stands_beside_the_difference_with_its_data_set(
    data: str, tmp_path: Path
) -> None:
    """DDML on Proxy-Anchor is printed with 87.86 over 85.99 on Cars."""
    rows = {"table": "ddml/table1", "column": "CAR/R@1", "row": "DDML(+PA)", "baseline": "PA"}
    gains: dict[str, object] = {"ddml": rows | {"metric": METRIC}}
    read = sweep({"plain": 0.0, "ddml": 0.02}, tmp_path, gains=gains, data=data)
    (verdict,) = read.verdicts
    assert verdict.printed is not None and verdict.data == data
    assert verdict.printed.value == pytest.approx(0.0187)
    assert verdict.printed.measured == verdict.difference
    assert verdict.printed.data == "Cars196"
    assert verdict.printed.is_same_data == (data == "cars196")


def test_what_there_is_not_is_told(sweeps: dict[str, SweepVerdicts], tmp_path: Path) -> None:
    wrong = OVERVIEW.comparisons[0].model_copy(update={"rows": ("n",)})
    with pytest.raises(ReportError, match=r"no row 'n'\. Its rows are _ddml_"):
        collect_lines(OVERVIEW.model_copy(update={"comparisons": (wrong,)}), sweeps.__getitem__)
    with pytest.raises(ReportError, match=r"gone\.json cannot be read"):
        read_verdicts(tmp_path / "gone.json")
    before = "# ablate\n<!-- overview -->\nold\n<!-- end overview -->\nrest\n"
    assert fill_block(before, "new") == before.replace("old", "new")
    with pytest.raises(ReportError, match="no block `<!-- overview -->`"):
        fill_block("# ablate\n", "new")


@pytest.mark.parametrize("rows", [(), ("m",)])
def test_a_row_whose_best_is_neutral_stands_there_once(
    rows: tuple[str, ...], tmp_path: Path
) -> None:
    """It is the best of `m`, and its best other cell loses."""
    made = sweep({"plain": 0.0, "m": 0.0, "m, not neutral": -0.03, "other": 0.02}, tmp_path)
    only = OVERVIEW.comparisons[0].model_copy(update={"rows": rows})
    asked = OVERVIEW.model_copy(update={"comparisons": (only,)})
    text = format_overview(collect_lines(asked, lambda _: made), "all.svg")
    found = [line.split(" | ")[2:4] for line in text.splitlines() if line.startswith("| ONE")]
    assert found[0][0] == "m" and found[0][1].startswith("−3.10 ")
    assert [row[0] for row in found] == (["m"] if rows else ["m", "other"])
