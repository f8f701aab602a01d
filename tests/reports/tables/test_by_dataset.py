"""Comparisons over several data sets: each has its own baseline, and its own verdicts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from reports.pages import markup
from reports.recipe import Table
from reports.tables.build import build
from reports.tables.model import TableData
from tests.reports.made import METRIC, frame

LEVEL = {"birds": 0.6, "cars": 0.3}


def value(coords: dict[str, Any], seed: int) -> float:
    better = 0.1 if coords.get("method") == "ddml" else 0.0
    return LEVEL[where(coords)["data.name"]] + better + 1e-3 * seed


def where(coords: dict[str, Any]) -> dict[str, str]:
    return {"data.name": coords.get("data") or coords["variant"].split()[-1]}


def table(coords: list[dict[str, Any]], seeds: int = 3, **recipe: Any) -> TableData:
    names = [" ".join(at.values()) for at in coords]
    made = frame("compare", coords, value, names=names, params=where, seeds=seeds)
    found = build(made, Table(kind="compare", study="s", metrics=(METRIC,), **recipe))
    assert isinstance(found, TableData)
    return found


def differences(found: TableData) -> dict[str, float | None]:
    by_cell = {}
    for row in found.rows:
        compared = row.measured[METRIC].compared
        inner = compared and compared.difference
        by_cell[row.cell] = inner and round(inner.mean, 6)
    return by_cell


@pytest.mark.parametrize("order", [("birds", "cars"), ("cars", "birds")])
def test_each_data_set_of_a_cross_has_its_own_baseline_and_verdict(order: tuple[str, str]) -> None:
    crossed = [{"method": m, "data": d} for m, d in itertools.product(("plain", "ddml"), order)]
    found = table(crossed, seeds=8)
    assert differences(found) == {
        "plain birds": None,
        "plain cars": None,
        "ddml birds": 0.1,
        "ddml cars": 0.1,
    }
    assert [row.cell for row in found.rows if row.baseline] == [f"plain {d}" for d in order]
    better = {row.cell for row in found.rows if row.measured[METRIC].better}
    assert better == {"ddml birds", "ddml cars"}
    text = markup.markdown(found)
    assert "Rows are on 2 data sets" in text and "over 2 comparison(s)" in text
    assert "No baseline" not in text


def test_each_data_set_with_each_loss_has_its_own_baseline() -> None:
    """Losses and data sets crossed with methods, `within: [loss]`: as many baselines as of both."""
    crossed = [
        {"data": data, "loss": loss, "method": method}
        for data, loss, method in itertools.product(LEVEL, ("pa", "ms", "ns"), ("plain", "ddml"))
    ]
    found = table(crossed, within=["loss"])
    assert {row.cell for row in found.rows if row.baseline} == {
        f"{data} {loss} plain" for data in LEVEL for loss in ("pa", "ms", "ns")
    }
    assert {value for name, value in differences(found).items() if "ddml" in name} == {0.1}


def test_the_recipe_s_baseline_names_the_method() -> None:
    crossed = [{"method": m, "data": d} for m, d in itertools.product(("plain", "ddml"), LEVEL)]
    found = table(crossed, baseline={"method": "ddml"})
    assert differences(found) == {
        "plain birds": -0.1,
        "plain cars": -0.1,
        "ddml birds": None,
        "ddml cars": None,
    }


def test_a_variant_alone_on_its_data_set_is_compared_with_nothing() -> None:
    found = table([{"variant": "a birds"}, {"variant": "b birds"}, {"variant": "c cars"}])
    assert differences(found) == {"a birds": None, "b birds": 0.0, "c cars": None}
    assert [row.cell for row in found.rows if row.baseline] == ["a birds"]
    text = markup.markdown(found)
    assert "No baseline to compare with: c cars." in text and "over 1 comparison(s)" in text


def test_a_sweep_that_is_not_done_has_its_rows_and_what_it_can_compare() -> None:
    """Of a row that has not begun, nothing tells the data set; no more of it is known."""
    crossed = [{"method": m, "data": d} for m, d in itertools.product(("plain", "ddml"), LEVEL)]
    names = [" ".join(at.values()) for at in crossed]

    def begun(at: dict[str, Any], seed: int) -> float | None:
        return None if at == {"method": "ddml", "data": "cars"} else value(at, seed)

    def known(at: dict[str, Any]) -> dict[str, str]:
        return {} if at == {"method": "ddml", "data": "cars"} else where(at)

    made = frame("compare", crossed, begun, names=names, params=known)
    found = build(made, Table(kind="compare", study="s", metrics=(METRIC,)))
    assert isinstance(found, TableData)
    assert [row.cell for row in found.rows] == names
    told = differences(found)
    assert told["ddml birds"] == 0.1 and told["ddml cars"] is None
    assert "| ddml | cars | missing |" in markup.markdown(found)


def test_one_data_set_is_as_ever() -> None:
    found = table([{"variant": "a birds"}, {"variant": "b birds"}])
    assert differences(found) == {"a birds": None, "b birds": 0.0}
    assert "data sets" not in markup.markdown(found)


def test_a_name_of_two_lines_stays_one_row_of_markdown() -> None:
    found = table([{"variant": "a\n| b birds"}, {"variant": "c birds"}])
    assert "| a \\| b birds |" in markup.markdown(found)
