"""`ablate ledger export`, `ablate ledger show` and `--force`."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from ablate.cli.main import main
from ablate.plan.plan import Plan
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished sweep, and after it one of the same name in which nothing ran."""
    plan, out = specs.plan(), tmp_path_factory.mktemp("finished")
    drain(dispatch(plan, out))
    dispatch(later(), out)
    return out, plan.sweep_id


def later() -> Plan:
    return specs.plan(specs.spec(trial__training__epochs=2))


def test_a_sweep_as_a_table(finished: tuple[Path, str], tmp_path: Path, capsys: Captured) -> None:
    out, sweep = finished
    to = tmp_path / "all.csv"
    assert main(["ledger", "export", sweep, "--out", str(out), "--to", str(to)]) == 0
    rows = pd.read_csv(to)
    expected = table(dispatch(specs.plan(), out))
    assert f"{len(expected)} rows" in capsys.readouterr().out
    assert list(rows["study"]) == [row["study"] for row in expected]
    assert list(rows["seed"]) == [row["seed"] for row in expected]
    assert list(rows["trial_id"]) == [row["trial_id"] for row in expected]
    values = [row["val/map_at_r"] for row in expected]
    assert list(rows["val/map_at_r"]) == pytest.approx(values, rel=1e-12)
    assert {"config/optimizer.lr", "config/method.name", "provenance/device"} <= set(rows)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["export", "nosuch"], "SWEEP: 'nosuch' is no sweep"),
        (["export", "--to", "x.xlsx"], "--to: 'x.xlsx' does not end in .csv"),
        (["export", "--to", "/nowhere/all.csv"], "cannot be written"),
        (["show", "%"], "Give more characters of one id"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    finished: tuple[Path, str], words: list[str], expected: str, capsys: Captured
) -> None:
    assert main(["ledger", *words, "--out", str(finished[0])]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1 and "None" not in error


def test_a_spreadsheet_runs_no_name(tmp_path: Path, capsys: Captured) -> None:
    levels = {"=1+1": {"embedding.dim": 64}, "@A1": {"embedding.dim": 128}}
    study = {"design": "one_factor", "factors": {"=SUM(A1)": levels}}
    plan = specs.plan({"name": "evil", "studies": {"-g": study}})
    drain(dispatch(plan, tmp_path))
    assert main(["ledger", "export", plan.sweep_id, "--out", str(tmp_path)]) == 0
    rows = pd.read_csv(io.StringIO(capsys.readouterr().out), dtype={"cell": str})
    assert set(rows["study"]) == {"'-g"}
    assert set(rows["cell"]) == {"centre", "'=SUM(A1)==1+1", "'=SUM(A1)=@A1"}
    assert set(rows["coords/=SUM(A1)"].dropna()) == {"'=1+1", "'@A1"}
    assert rows["val/map_at_r"].dtype == float
