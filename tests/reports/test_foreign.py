"""`ablate judge`: runs of other programs get the verdicts that a report would give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.cli.main import main
from ablate.ledger.records import Records
from ablate.results import read_frame
from reports.foreign import judge_runs, read_runs
from reports.pages.verdict_text import read_verdicts
from reports.tables.build import build_all
from reports.tables.verdict import DECIDED, judge_tables
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain
from trainables.words.errors import ConfigError

GAINS = {"plain": 0.0, "ddml": 0.9, "nir": 0.0, "idml": -1.5}


def make_runs(seeds: int = 8, gains: dict[str, float] = GAINS) -> pd.DataFrame:
    """Runs of each row in per cent, with the seed's noise in common."""
    rng = np.random.default_rng(3)
    shared = rng.normal(0, 0.5, seeds)
    rows = [
        {"method": name, "seed": seed, "map_at_r": 50 + gain + shared[seed] + rng.normal(0, 0.2)}
        for name, gain in gains.items()
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


def judge(runs: pd.DataFrame, **options: Any) -> dict[str, Any]:
    shared = {"row": "method", "metric": "map_at_r"} | options
    return {each.cell: each for each in judge_runs(runs, **shared).verdicts}


@pytest.mark.parametrize("splits", [None, 3])
def test_an_export_gets_the_verdicts_of_its_report(
    splits: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"plain": 1e-3, "lower": 2e-4, "near": 9.9e-4}
    study: dict[str, Any] = {
        "design": "compare",
        "seeds": 5,
        "variants": {name: {"trial": {"optimizer.lr": lr}} for name, lr in rates.items()},
    }
    study |= {} if splits is None else {"splits": splits}
    report = {"tables": [{"kind": "compare", "study": "judged", "metrics": ["val/map_at_r"]}]}
    plan = specs.plan({"name": "judged", "studies": {"judged": study}, "report": report})
    drain(dispatch(plan, tmp_path))
    with Records(tmp_path / "ledger.sqlite") as records:
        frame = read_frame(records, plan.sweep_id)
    expected = judge_tables(frame, build_all(frame, frame.recipe))
    file = tmp_path / "runs.csv"
    assert main(["ledger", "export", plan.sweep_id, "--out", str(tmp_path), "--to", str(file)]) == 0
    capsys.readouterr()
    command = ["judge", str(file), "--row", "cell", "--metric", "val/map_at_r", "--json"]
    command += [] if splits is None else ["--split", "fold"]
    assert main([*command, "--out", str(tmp_path / "judged")]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    found = read_verdicts(tmp_path / "judged" / "verdicts.json").verdicts
    assert len(found) == len(expected) == 2
    for a, b in zip(found, expected, strict=True):
        for name in ("cell", "call", "n", "small", "smallest", "unit", "family", "level"):
            assert getattr(a, name) == getattr(b, name), name
        assert a.difference is not None and b.difference is not None
        ends = [(gap.mean, gap.low, gap.high) for gap in (a.difference, b.difference)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-12)


def test_what_was_planted_is_found(tmp_path: Path) -> None:
    calls = {cell: each.call for cell, each in judge(make_runs()).items()}
    assert calls["ddml"] == "better" and calls["idml"] == "worse" and calls["nir"] not in DECIDED
    again = judge(make_runs().assign(map_at_r=lambda runs: runs["map_at_r"] / 100))
    assert {cell: each.call for cell, each in again.items()} == calls  # shares
    written = ablate.judge(make_runs(), row="method", metric="map_at_r").write(tmp_path)
    assert {"verdict.txt", "verdicts.json", "forest.svg", "table_runs.tex"} <= set(written)


def test_options_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.csv"
    pd.concat([make_runs().assign(dataset="cub"), make_runs(3).assign(dataset="cars")]).to_csv(file)
    command = ["judge", str(file), "--row", "method", "--metric", "map_at_r", "--baseline", "idml"]
    assert main(command) == 2  # two data sets
    assert main([*command, "--where", "dataset=cub", "--shuffles", "20", "--smallest", "1"]) == 0
    text = capsys.readouterr().out
    assert "beat idml" in text and "δ = 1" in text and "shuffled" in text
    assert main([*command, "--where", "dataset"]) == 2 and "no `=`" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "semicolon.csv", "tsv", "parquet", "jsonl", "json"])
def test_formats(ending: str, tmp_path: Path) -> None:
    runs, path = make_runs(3), tmp_path / f"runs.{ending}"
    if ending == "parquet":
        runs.to_parquet(path)
    elif ending.startswith("json"):
        runs.to_json(path, orient="records", lines=ending == "jsonl")
    else:
        signs = {"csv": ",", "tsv": "\t", "semicolon.csv": ";"}
        runs.to_csv(path, sep=signs[ending], index=False)
    expected, found = judge(runs), judge(read_runs(path))
    assert {cell: each.call for cell, each in found.items()} == {
        cell: each.call for cell, each in expected.items()
    }


def test_runs_of_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.create_experiment("mine")
    for run in make_runs(2).to_dict("records"):
        made = client.create_run(experiment).info.run_id
        client.log_param(made, "method", run["method"])
        client.log_param(made, "seed", run["seed"])
        client.log_metric(made, "map_at_r", run["map_at_r"])
        client.set_terminated(made)
    assert set(judge(read_runs(f"mlflow:{uri}#mine"))) == {"ddml", "nir", "idml"}
    with pytest.raises(ConfigError, match="no_such"):
        read_runs(f"mlflow:{uri}#no_such")


def test_failed_runs_leave_a_row_open() -> None:
    runs = make_runs().assign(state="finished")
    lost = (runs["method"] == "ddml") & (runs["seed"] == 3)
    runs.loc[lost, ["state", "map_at_r"]] = ["crashed", None]
    assert judge(runs)["ddml"].call == "open" and judge(runs)["ddml"].failed == "1 of 8 runs failed"
    repeat = runs[lost].assign(state="finished", map_at_r=51.0)
    assert judge(pd.concat([runs, repeat]))["ddml"].call == "better"  # repeated at its seed
    empty = runs.drop(columns="state")  # a run without a value has failed, too
    assert judge(empty)["ddml"].failed
    assert judge(runs, failed="worst")["ddml"].call in ("better", "open")


def test_one_seed_and_unequal_seeds_are_said() -> None:
    runs = make_runs()
    single = judge(runs[(runs["method"] != "idml") | (runs["seed"] == 0)])
    assert single["idml"].call not in DECIDED and single["ddml"].call == "better"
    fewer = judge_runs(
        runs[(runs["method"] != "ddml") | (runs["seed"] < 5)], row="method", metric="map_at_r"
    )
    assert fewer.verdicts[0].n == 5


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({"dataset": ["cub", "cars"] * 16}, {}, "2 data sets"),
        ({"seed": 0}, {}, "8 runs are of row plain"),
        ({"map_at_r": "n/a"}, {}, "is no number"),
        ({"map_at_r": [0.5, 61.0] + [0.001] * 30}, {}, "per cent"),
        ({"map_at_r": [0.5] * 8 + [52.0] * 24}, {}, "per cent"),
        ({"seed": [0.0, None] * 16}, {}, "16 of 32 runs have no value, the first in line 3"),
        ({"method": [None, *"abc"] * 8}, {}, "the column method"),
        ({}, {"smallest": -1.0}, "Give a positive number"),
        ({"method": "a", "seed": range(32)}, {}, "all runs are of the row"),
        ({}, {"row": "methods"}, "Did you mean 'method'"),
        ({}, {"metric": "recall"}, "column 'recall' is unknown"),
        ({}, {"baseline": "plane"}, "Did you mean 'plain'"),
        ({"mine": 1.0}, {"metric": "mine"}, "smallest"),
        ({}, {"where": {"method": "none"}}, "no run is left"),
        ({"seed": [*range(8), *range(8, 32)]}, {"shuffles": 5}, "0 common blocks"),
    ],
)
def test_refusals(change: dict[str, Any], options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        judge(make_runs().assign(**change), **options)


def test_blocks_that_look_like_one_number_are_two() -> None:
    runs = make_runs(4).assign(seed=["1", "01", "2", "3"] * 4)
    assert judge(runs)["ddml"].n == 4


def test_a_metric_of_ones_own_has_its_direction() -> None:
    runs = make_runs().rename(columns={"map_at_r": "loss"})
    found = judge(runs, metric="loss", smallest=0.1, lower_is_better=True)
    assert found["ddml"].call == "worse" and found["idml"].call == "better"


@pytest.mark.parametrize("seeds", [3, 8])
def test_shuffled_rows_rarely_differ(seeds: int) -> None:
    """Of 200 tables with rows that do not differ 5 % may have a verdict, plus chance."""
    runs = make_runs(seeds, {"a": 0.0, "b": 0.0, "c": 0.0})
    control = judge_runs(runs, row="method", metric="map_at_r", shuffles=200)
    assert control.false_share is not None
    assert control.false_share <= 0.05 + 2.5 * (0.05 * 0.95 / 200) ** 0.5
    assert "shuffled" in control.text
