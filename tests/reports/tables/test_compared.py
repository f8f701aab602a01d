"""Comparisons: which rows stand in them, what each is compared with, what is printed beside."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from reports.frame import OTHER, Frame
from reports.pages import markup
from reports.papers import load_published_table as printed
from reports.recipe import Recipe, Table
from reports.stats.paired import Improvement
from reports.tables.build import build_all, build_table
from reports.tables.model import Sheet, TableData
from tests.reports.made import METRIC, frame
from trainables.evaluation.metric import METRIC_REGISTRY
from trainables.words.errors import ReportError
from trainables.words.metrics import declare_metrics, find_metric, format_metric_label, is_share

RECALL = "test/recall_at_1"


def compared(found: Frame, **recipe: Any) -> TableData:
    table = build_table(found, Table(kind="compare", study="s", **recipe))
    assert isinstance(table, TableData)
    return table


# --- a method switched off may be the best of its tuning

ROWS = ["plain", "ddml", "nir", f"ddml{OTHER}", f"nir{OTHER}"]


def tuned(won: list[str]) -> Frame:
    """`won`: the methods whose best is neutral; the other rows are one trial with theirs."""
    coords: list[dict[str, Any]] = [{"variant": name} for name in ROWS[:3]]
    coords += [{"variant": name, "neutral": "left out"} for name in ROWS[3:]]
    value = {name: 0.5 + 0.01 * i for i, name in enumerate(ROWS)}
    made = frame("compare", coords, lambda c, s: value[c["variant"]] + s / 1e3, names=ROWS)
    cells = made.parents[0].document["cells"]
    for cell in cells:
        name = cell["cell"].removesuffix(OTHER)
        if cell["cell"].endswith(OTHER) and name not in won:
            cell["trial_id"] = f"t{ROWS.index(name)}-{cell['seed']}"
    trials = made.trials[made.trials["trial_id"].isin([cell["trial_id"] for cell in cells])]
    keys = ("study", "cell", "coords", "idx")
    tags = [
        {"ablate.cells": json.dumps([{k: c[k] for k in keys} for c in cells if c["trial_id"] == t])}
        for t in trials["trial_id"]
    ]
    return Frame(None, made.parents, trials.assign(tags=tags))


@pytest.mark.parametrize("won", [[], ["ddml"], ["ddml", "nir"]])
def test_where_the_best_is_neutral_the_best_other_stands_beside_it(won: list[str]) -> None:
    made = compared(tuned(won), baseline="plain")
    expected = []
    for name, mean, other in (("plain", 0.501, 0), ("ddml", 0.511, 0.531), ("nir", 0.521, 0.541)):
        expected.append((f"{name} (switched off by tuning)" if name in won else name, mean))
        expected += [(name + OTHER, other)] if name in won else []
    summaries = [row.measured[METRIC].summary for row in made.rows]
    means = [round(each.mean, 3) for each in summaries if each]
    assert [(*row.labels, mean) for row, mean in zip(made.rows, means, strict=True)] == expected
    notes = [note for note in made.notes if "switched off by tuning" in note]
    named = [note.partition(":")[0] for note in notes]  # rows of which the same holds share a note
    assert named == ([", ".join(won)] if won else []) and made.headers == ("variant",)


@pytest.mark.parametrize("within", [(), ("data",)])
def test_what_is_said_of_a_method_stands_with_its_name(within: tuple[str, ...]) -> None:
    """Not with the first label, which names the data."""
    points: list[dict[str, Any]] = [
        {"data": "birds", "method": "plain"},
        {"data": "birds", "method": "ddml"},
        {"data": "birds", "method": "ddml", "neutral": "left out"},
        {"data": "birds", "method": "nir"},
    ]
    names = ["plain", "ddml", f"ddml{OTHER}", "nir"]
    found = frame("compare", points, lambda c, s: 0.5 + 0.01 * len(c) + s / 1e3, names=names)
    found.document["spec"]["other_regimes"] = {"s": {"nir": "rates from heads"}}
    baseline = "plain" if within else {"method": "plain"}
    layout: dict[str, Any] = {"within": within, "matrix": "data" if within else None}
    recipe = Table(kind="compare", study="s", baseline=baseline, alone=True, **layout)
    *matrix, table = build_all(found, Recipe(tables=(recipe,)))
    assert isinstance(table, TableData)
    methods = ["plain", "ddml (switched off by tuning)", f"ddml{OTHER}", "nir (rates from heads)"]
    assert [row.labels for row in table.rows] == [("birds", method) for method in methods]
    if within:
        (sheet,) = matrix
        assert sheet.headers == ("method", "birds") and isinstance(sheet, Sheet)
        assert [row[0].text for row in sheet.rows] == ["plain", "ddml", f"ddml{OTHER}", "nir"]


# --- several data sets, and factors within which rows are compared

LEVEL = {"birds": 0.6, "cars": 0.3}
CROSS = [{"method": m, "data": d} for m, d in itertools.product(("plain", "ddml"), LEVEL)]


def value(coords: dict[str, Any], seed: int) -> float:
    better = 0.1 if coords.get("method") == "ddml" else 0.0
    return LEVEL[where(coords)["data.name"]] + better + 1e-3 * seed


def where(coords: dict[str, Any]) -> dict[str, str]:
    return {"data.name": coords.get("data") or coords["variant"].split()[-1]}


def on_data(coords: list[dict[str, Any]], seeds: int = 3, **recipe: Any) -> TableData:
    names = [" ".join(at.values()) for at in coords]
    made = frame("compare", coords, value, names=names, params=where, seeds=seeds)
    return compared(made, **recipe)


def differences(found: TableData) -> dict[str, float | None]:
    gaps = {row.cell: row.measured[METRIC].difference for row in found.rows}
    return {cell: gap and round(gap.mean, 6) for cell, gap in gaps.items()}


def baselines(found: TableData) -> list[str]:
    return [row.cell for row in found.rows if row.baseline]


def test_each_data_set_of_a_cross_has_its_own_baseline_and_verdict() -> None:
    found = on_data(CROSS, seeds=8)
    gains = {f"ddml {data}": 0.1 for data in LEVEL}
    assert differences(found) == {**{f"plain {data}": None for data in LEVEL}, **gains}
    assert {row.cell for row in found.rows if row.measured[METRIC].better} == {*gains}
    text = markup.format_markdown_table(found)
    assert "Rows are on 2 data sets" in text and "decides, δ = 0.3; 1 comparison." in text
    # losses and data sets crossed with methods, `within: [loss]`: as many baselines as of both
    crossed = [
        {"data": data, "loss": loss, "method": method}
        for data, loss, method in itertools.product(LEVEL, ("pa", "ms", "ns"), ("plain", "ddml"))
    ]
    found = on_data(crossed, within=["loss"])
    expected = {f"{data} {loss} plain" for data in LEVEL for loss in ("pa", "ms", "ns")}
    assert {*baselines(found)} == expected
    assert {gap for name, gap in differences(found).items() if "ddml" in name} == {0.1}


def test_the_baseline_is_the_method_s_and_none_where_a_data_set_has_no_other() -> None:
    found = differences(on_data(CROSS, baseline={"method": "ddml"}))
    assert found == {
        **{f"plain {data}": -0.1 for data in LEVEL},
        **{f"ddml {data}": None for data in LEVEL},
    }
    alone = on_data([{"variant": "a\n| a birds"}, {"variant": "b birds"}, {"variant": "c cars"}])
    assert differences(alone) == {"a\n| a birds": None, "b birds": 0.0, "c cars": None}
    assert "No baseline to compare with: c cars." in alone.notes
    assert "| a \\| a birds |" in markup.format_markdown_table(alone), "a name of two lines"


def test_a_refused_combination_is_a_row_without_numbers_and_a_reason() -> None:
    pairs = [("pa", "plain"), ("pa", "nir"), ("ms", "plain"), ("ms", "ddml")]
    coords = [{"loss": loss, "method": method} for loss, method in pairs]
    tuning = {",".join(f"{k}={v}" for k, v in at.items()): 4 for at in coords}
    made = frame("compare", coords, lambda at, seed: 0.3 + seed / 100, tuning=tuning)
    refused = {"loss": "ms", "method": "nir"}
    made.document["spec"]["refused"] = {
        "s": [{"cell": "loss=ms,method=nir", "coords": refused, "reason": "a loss with proxies"}]
    }
    found = compared(made, within=["loss"])
    assert baselines(found) == ["loss=pa,method=plain", "loss=ms,method=plain"]
    row = found.rows[-1]
    assert row.labels == ("ms", "nir") and row.n == row.planned == 0
    assert "Refused: loss=ms,method=nir: a loss with proxies." in found.notes
    assert "| ms | nir | refused |" in markup.format_markdown_table(found)


# --- what is published beside them

PRINTED = {"PA": "Proxy-Anchor 512", "DetReg": "Ours 512"}


def beside_print(**published: Any) -> TableData:
    given = {"table": "detreg/table1", "columns": {RECALL: "CUB/R@1"}, "rows": PRINTED, **published}
    variants = [{"variant": name} for name in PRINTED]
    cells = frame(
        "compare", variants, lambda at, seed: 0.6 + 0.01 * seed, names=[*PRINTED], metric=RECALL
    )
    return compared(cells, metrics=(RECALL,), published=given)


def test_printed_rows_that_nobody_trains_stand_below_with_their_numbers_alone() -> None:
    found = beside_print(others=True)
    below = found.rows[2:]
    every = [row.name for row in printed("detreg/table1").rows]
    assert [row.cell for row in below] == [name for name in every if name not in PRINTED.values()]
    for row in below:
        number = row.measured[RECALL].printed
        assert row.printed_only and row.n == row.planned == 0 and not row.run_ids
        assert number is not None and number.row == row.cell
    text = markup.format_markdown_table(found)
    assert "| HDC 384 (published only) | – |  | 53.6 | – |" in text
    assert "Without a result" not in text, "nothing is missing"
    with pytest.raises(ReportError, match="Clustering 64"):
        beside_print(others=["MX *"])


def test_metrics_are_shown_as_they_are_declared() -> None:
    assert is_share("train/recall_at_1") and not is_share("train/loss")
    assert format_metric_label("test/of_another_package") == "of another package, test"
    assert format_metric_label("train/nmi") == "NMI, training (%)"
    for name in METRIC_REGISTRY:
        declared, shown = METRIC_REGISTRY[name], find_metric(f"test/{name}")
        assert (shown.unit, shown.direction) == (declared.unit, declared.direction), name
    declare_metrics({"far_of_others": {"unit": "%", "direction": "minimize"}})
    assert format_metric_label("test/far_of_others") == "far of others ↓, test (%)"


@pytest.mark.parametrize(
    ("metric", "bold", "chance"),
    [("test/spectrum", ["nir"], 1.0), ("test/density", [], 0.0), ("test/map_at_r", [], 0.0)],
)
def test_where_less_is_better_the_smaller_one_wins(
    metric: str, bold: list[str], chance: float
) -> None:
    made = frame(
        "compare",
        [{"variant": "plain"}, {"variant": "nir"}],
        lambda at, seed: (0.2 if at["variant"] == "plain" else 0.1) + 1e-3 * seed,
        names=["plain", "nir"],
        metric=metric,
        seeds=6,
    )
    table = compared(made, metrics=(metric,), baseline="plain")
    assert [row.cell for row in table.rows if row.measured[metric].better] == bold
    comparison = table.rows[1].measured[metric].compared
    assert comparison is not None and comparison.improvement is not None
    assert comparison.improvement.probability == chance
    assert comparison.difference is not None
    assert comparison.difference.mean == pytest.approx(-0.1), "the difference keeps its sign"
    assert ("↓" in markup.format_markdown_table(table)) == (metric == "test/spectrum")


def test_over_splits_the_chance_to_win_is_counted_within_each_split() -> None:
    """Splits differ by more than rows do: all pairs would give 0.56."""

    def score(at: dict[str, Any], seed: int) -> float:
        return 0.1 * seed + (0.01 if at["variant"] == "ddml" and seed else 0.0)

    variants = [{"variant": name} for name in ("plain", "ddml")]
    made = frame("compare", variants, score, seeds=5, study={"splits": 5})
    made.cells["fold"], made.cells["seed"] = made.cells["seed"], 0
    table = compared(made)
    comparison = table.rows[1].measured[METRIC].compared
    assert comparison is not None and comparison.improvement is not None
    assert comparison.improvement == Improvement(0.9, None, None)  # 4 wins and a tie of 5
    assert comparison.delta == pytest.approx(0.8)
    assert "P(better)" in markup.build_grid(table).headers
    assert any("share of the splits" in note for note in table.notes)
    made.document["studies"]["s"]["objectives"] = [{"metric": METRIC, "direction": "minimize"}]
    comparison = compared(made).rows[1].measured[METRIC].compared
    assert comparison is not None and comparison.improvement is not None
    assert comparison.improvement.probability == pytest.approx(0.1)
