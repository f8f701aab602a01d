"""`ablate export --to optuna`, read back by Optuna."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from ablate.cli.main import main
from ablate.sweep.dispatch import Dispatch
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, finish, table

Captured = pytest.CaptureFixture[str]


def export(out: Path, *words: str) -> int:
    return main(["export", "small", "--to", "optuna", "--out", str(out), *words])


def studies(out: Path) -> dict[str, optuna.Study]:
    uri = f"sqlite:///{out / 'optuna.db'}"
    names = optuna.get_all_study_names(uri)
    return {name: optuna.load_study(study_name=name, storage=uri) for name in names}


def means(made: Dispatch, study: str) -> list[float]:
    """By cell, in order, of its seeds."""
    cells: dict[str, list[Any]] = {}
    for row in table(made):
        if row["study"] == study:
            cells.setdefault(row["cell"], []).append(row["val/map_at_r"])
    return [statistics.fmean(values) for values in cells.values()]


def test_all_studies_can_be_loaded(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = dispatch(specs.plan(), tmp_path)
    drain(made)
    assert export(tmp_path) == 0
    assert "small/tune: 6 trials" in capsys.readouterr().out
    found = studies(tmp_path)
    assert set(found) == {f"small/{name}" for name in ("tune", "parts", "grid", "rows")}
    tune = found["small/tune"]
    assert tune.metric_names == ["val/map_at_r"] and tune.direction.name == "MAXIMIZE"
    assert tune.user_attrs["design"] == "search" and tune.user_attrs["sweep"] == made.sweep_id
    assert [trial.value for trial in tune.trials] == means(made, "tune")
    assert tune.best_value == max(means(made, "tune"))
    first = tune.trials[0]
    assert first.distributions == {
        "optimizer.lr": FloatDistribution(1e-4, 1e-2, log=True),
        "method.alpha": FloatDistribution(0, 1),
    }
    rows = [row for row in table(made) if row["study"] == "tune"]
    assert first.params == {path: rows[0][f"coords/{path}"] for path in first.params}
    assert first.user_attrs["trials"] == [rows[0]["trial_id"]]
    assert list(first.intermediate_values) == [1, 2, 3] and first.duration is not None
    grid = found["small/grid"].trials
    assert [trial.value for trial in grid] == pytest.approx(means(made, "grid"))
    assert grid[0].distributions["method.beta"] == CategoricalDistribution((0.1, 1))
    assert len(grid[0].user_attrs["trials"]) == 2, "two seeds"
    assert {trial.state for each in found.values() for trial in each.trials} == {
        TrialState.COMPLETE
    }
    # what is there stays, and a bad storage is one line
    monkeypatch.setenv("THERE", "postgresql+nothing://user:secret@127.0.0.1/x")
    for words, line in (
        ([], "--storage: found small/grid, small/parts, small/rows, small/tune, which are there"),
        (["--storage", f"sqlite:///{tmp_path}/no/such/folder.db"], "--storage: found sqlite:///"),
        (["--storage", "env:THERE"], "a database that Optuna can write"),
        (["--storage", "env:ABSENT"], "and no such variable"),
    ):
        assert export(tmp_path, *words) == 2
        said = capsys.readouterr().err
        assert line in said and said.count("\n") == 1 and "secret" not in said
    assert export(tmp_path, "--replace") == 0
    counts = {name: len(each.trials) for name, each in studies(tmp_path).items()}
    assert counts == {"small/tune": 6, "small/parts": 4, "small/grid": 4, "small/rows": 2}


def test_what_failed_runs_or_waits_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = dispatch(specs.plan(), tmp_path)
    first, second = made.next_job(), made.next_job()
    assert first is not None and second is not None
    monkeypatch.setenv("SYN_FAIL", "1e-9")
    finish(made, first.trial_id)
    assert export(tmp_path) == 0
    trials = studies(tmp_path)["small/tune"].trials
    state = {trial.user_attrs["trials"][0]: trial for trial in trials}
    assert state[first.trial_id].state == TrialState.FAIL
    assert "the loss is not finite" in state[first.trial_id].user_attrs["reasons"][0]
    assert state[second.trial_id].state == TrialState.RUNNING
    (third,) = set(state) - {first.trial_id, second.trial_id}
    assert state[third].state == TrialState.WAITING


def test_choices_of_a_search_are_categories(tmp_path: Path) -> None:
    losses = [{"name": "normsoftmax"}, {"name": "proxy_anchor"}]
    space = {"loss": {"choice": losses}, "training.batch_size": {"low": 8, "high": 64, "int": True}}
    given = specs.spec(studies__tune__space=space)
    given["studies"] = {"tune": given["studies"]["tune"]}
    drain(dispatch(specs.plan(given), tmp_path))
    assert export(tmp_path) == 0
    (study,) = studies(tmp_path).values()
    for trial in study.trials:
        assert trial.params["loss"] in {'{"name": "normsoftmax"}', '{"name": "proxy_anchor"}'}
        assert trial.distributions["training.batch_size"] == IntDistribution(8, 64)
