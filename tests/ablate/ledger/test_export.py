"""`ablate ledger export` and `--force`."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from ablate.cli.main import main
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Path, str]:
    plan = specs.plan()
    drain(dispatch(plan, tmp_path))
    return tmp_path, plan.sweep_id


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_sweep_as_a_table(
    finished: tuple[Path, str], suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sweep = finished
    to = out / f"all.{suffix}"
    assert main(["ledger", "export", sweep, "--out", str(out), "--to", str(to)]) == 0
    readers = {"csv": pd.read_csv, "parquet": pd.read_parquet}
    found = readers[suffix](to) if suffix in readers else pd.read_json(to, lines=True)
    expected = table(dispatch(specs.plan(), out))
    assert f"{len(expected)} rows" in capsys.readouterr().out
    by_cell = {(row["study"], row["cell"], row["seed"]): row for row in expected}
    assert len(found) == len(expected)
    for _, row in found.iterrows():
        other = (
            by_cell[row["study"], str(row["cell"]).zfill(4), row["seed"]]
            if row["study"] == "tune"
            else by_cell[row["study"], row["cell"], row["seed"]]
        )
        assert row["trial_id"] == other["trial_id"]
        assert row["val/map_at_r"] == pytest.approx(other["val/map_at_r"], rel=1e-12)
    assert {"config/optimizer.lr", "config/method.name", "provenance/device"} <= set(found)


def test_a_whole_ledger_is_printed(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = finished
    assert main(["ledger", "export", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    with_made = dispatch(specs.plan(), out)
    (count,) = with_made.ledger.rows("SELECT count(*) AS n FROM trials")
    assert len(lines) == count["n"] + 1 and lines[0].startswith("trial_id,")


def test_a_sweep_may_be_called_by_its_name(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, sweep = finished
    later = specs.plan(specs.spec(trial__training__epochs=2))  # of the same name
    dispatch(later, out)
    texts = []
    for name in ("small", later.sweep_id, sweep):
        assert main(["ledger", "export", name, "--out", str(out)]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and later.sweep_id in texts[0], "the latest of that name"
    assert sweep in texts[2] and later.sweep_id not in texts[2]


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["nosuch"], "SWEEP: found 'nosuch'"), (["--to", "x.xlsx"], "--to: found 'x.xlsx'")],
)
def test_export_of_nothing_is_one_line(
    finished: tuple[Path, str], words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "export", *words, "--out", str(finished[0])]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


def test_force_trains_all_of_it_once_more(finished: tuple[Path, str]) -> None:
    out, _ = finished
    plan = specs.plan()
    known = dispatch(plan, out)
    before = table(known)
    trials = {row["trial_id"] for row in before}
    mark = out / "trials" / min(trials) / "mark"
    mark.touch()
    assert drain(known) == []
    forced = dispatch(plan, out, force=True)
    trained = [name for name in drain(forced) if name.endswith(" train")]
    assert sorted(trained) == sorted(f"{trial} train" for trial in trials), "each once"
    assert table(forced) == before
    assert not mark.exists()
    assert drain(dispatch(plan, out)) == []


def test_show_wants_one_trial(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = finished
    trial = table(dispatch(specs.plan(), out))[-1]["trial_id"]
    for whole in (trial, trial.partition("-")[0]):
        assert main(["ledger", "show", whole, "--json", "--out", str(out)]) == 0
        assert f'"{trial.partition("-")[0]}-s' in capsys.readouterr().out
    assert main(["ledger", "show", "%", "--out", str(out)]) == 2
    assert "the beginning of one trial's id, not of " in capsys.readouterr().err


def test_why_a_file_cannot_be_written_is_said(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = finished
    to = out / "nowhere" / "all.csv"
    assert main(["ledger", "export", "--out", str(out), "--to", str(to)]) == 2
    told = capsys.readouterr().err
    assert "cannot be written" in told and "None" not in told


def test_a_spreadsheet_runs_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels = {"=1+1": {"embedding.dim": 64}, "@A1": {"embedding.dim": 128}}
    study = {"design": "one_factor", "factors": {"=SUM(A1)": levels}}
    plan = specs.plan({"name": "evil", "studies": {"-g": study}})
    drain(dispatch(plan, tmp_path))
    assert main(["ledger", "export", plan.sweep_id, "--out", str(tmp_path)]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out), dtype={"cell": str})
    assert set(found["study"]) == {"'-g"}
    assert set(found["cell"]) == {"centre", "'=SUM(A1)==1+1", "'=SUM(A1)=@A1"}
    assert set(found["coords/=SUM(A1)"].dropna()) == {"'=1+1", "'@A1"}
    assert found["val/map_at_r"].dtype == float
