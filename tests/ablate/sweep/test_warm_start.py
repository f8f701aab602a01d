"""Searches that start from finished trials of earlier sweeps in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.plan.plan import Plan
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain, run, stopped_often, table
from trainables.core import components, identity
from trainables.words.errors import ConfigError

RATE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
SEARCH = {"design": "search", "trials": 6, "round": 3, "startup": 3, "seeds": 2}


def plan(name: str, trials: int = 6, epochs: int = 2, **more: Any) -> Plan:
    tune = {**SEARCH, "trials": trials, "space": RATE, **more}
    rows = {
        "design": "compare",
        "variants": {"a": {"around": {"best_of": "tune"}}, "b": {"trial": {"optimizer.lr": 1e-3}}},
    }
    studies = {"tune": tune, "rows": rows}
    return specs.plan({"name": name, "trial": {"training.epochs": epochs}, "studies": studies})


def params(made: JobQueue) -> list[dict[str, Any]]:
    return [cell.coords for cell in made.progression.studies["tune"].cells if cell.seed == 0]


def test_the_sampler_learns_from_them_and_no_trial_is_repeated(tmp_path: Path) -> None:
    first = run(plan("first"), tmp_path)
    made = plan("second", seeds=3, warm_start="first", startup=6)
    second = run(made, tmp_path)
    assert {str(p) for p in params(first)}.isdisjoint(map(str, params(second)))
    proposer = second.progression.proposers["tune"]
    best = first.progression.ranking.rank_study("tune")[0]
    history = proposer.list_history({})
    assert len(history) == 7 + 6  # one of each configuration, a row among them
    assert max(t.values or (0.0,) for t in history[:7]) >= (best.value,)
    assert len(made.warm_trials["tune"]) == 13  # 6 configurations at 2 seeds, and a row of its own


def test_the_sampler_sees_them_under_force_too(tmp_path: Path) -> None:
    run(plan("first"), tmp_path)
    made = dispatch(plan("second", warm_start="first"), tmp_path, force=True)
    made.claim_next_job()
    history = made.progression.proposers["tune"].list_history({})
    assert [t.value is None for t in history] == [False] * 7 + [True] * 3  # and its first round


def test_they_count_in_the_budgets_of_the_rows(tmp_path: Path) -> None:
    run(plan("first"), tmp_path)
    made = plan("second", warm_start="first")
    run(made, tmp_path)
    assert made.trace_lineages()["rows"]["a"] == {"tune": 12, "first, for tune": 13}
    assert made.count_tuning_trials()["rows"] == {"a": 25, "b": 0}


def test_trials_of_another_regime_are_not_taken(tmp_path: Path) -> None:
    run(plan("first", epochs=3), tmp_path)
    made = plan("second", warm_start="first")
    run(made, tmp_path)
    assert made.warm_trials["tune"] == ()


@pytest.mark.parametrize("change", ["data", "revision"])
def test_trials_of_other_data_or_revisions_are_not_taken(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(plan("first"), tmp_path)
    if change == "data":
        monkeypatch.setattr(synthetic, "fingerprint", lambda config, cache: "other images")
    else:
        monkeypatch.setattr(identity, "get_revision", lambda component: 99)
    made = run(plan("second", warm_start="first"), tmp_path).progression
    assert made.plan.warm_trials["tune"] == ()
    # nor are they seen by a search that listed them before
    monkeypatch.undo()
    listed = plan("third", warm_start="first")
    dispatch(listed, tmp_path)
    assert len(listed.warm_trials["tune"]) == 13
    monkeypatch.setattr(identity, "get_revision", lambda component: 99)
    again = run(plan("third", warm_start="first"), tmp_path).progression
    assert len(again.proposers["tune"].list_history({})) == 6


@pytest.mark.parametrize("force", [False, True])
def test_trials_of_other_code_are_refused(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --force too, which trains only the row again that is a trial of both sweeps."""
    drain(dispatch(plan("first"), tmp_path, sources=True))
    monkeypatch.setattr(components, "compute_component_digest", lambda name: ("edited", ""))
    second = plan("second", warm_start="first")
    made = dispatch(second, tmp_path, sources=True, force=force)
    with pytest.raises(ConfigError, match=f"{13 - force} known trials were made by other code"):
        made.reconcile_code_versions(same_code=False)
    assert made.reconcile_code_versions(same_code=True)
    dispatch(second, tmp_path, sources=True).reconcile_code_versions(same_code=False)


def test_the_list_is_fixed_when_the_search_is_first_planned(tmp_path: Path) -> None:
    run(plan("first"), tmp_path / "a")
    run(plan("first"), tmp_path / "b")
    undisturbed = run(plan("second", seeds=1, warm_start="first"), tmp_path / "a")
    # in the other folder the earlier sweep goes on while the second is interrupted
    half = plan("second", seeds=1, warm_start="first")
    begun = dispatch(half, tmp_path / "b")
    begun.claim_next_job()
    begun.interrupt_all("stopped by the test")
    run(plan("first", trials=9), tmp_path / "b")
    stopped, _ = stopped_often(plan("second", seeds=1, warm_start="first"), tmp_path / "b", seed=1)
    assert table(stopped) == table(undisturbed)


def test_a_known_configuration_is_proposed_again_and_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setenv("SYN_STARTS", str(starts))
    first = run(plan("first"), tmp_path)
    known = params(first)[:2]
    second = run(plan("second", warm_start="first", points=known), tmp_path)
    assert params(second)[:2] == known
    trained = [line.split()[0] for line in starts.read_text().splitlines()]
    assert len(trained) == len({*trained}) == first.trained + second.trained
    assert second.trained == 4 * 2  # without the points; the rows are known too


@pytest.mark.parametrize(
    ("sampler", "seed"),
    [
        ("tpe", 0),
        pytest.param("tpe", 1, marks=pytest.mark.slow),
        pytest.param("cmaes", 2, marks=pytest.mark.slow),
    ],
)
def test_kills_change_no_proposal_of_sweeps_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, seed: int
) -> None:
    sweeps = [
        plan("first", sampler=sampler),
        plan("second", sampler=sampler, startup=6, warm_start="first"),
        plan("third", sampler=sampler, seeds=3, warm_start="second"),
    ]
    undisturbed = [run(made, tmp_path / "a") for made in sweeps]
    starts = tmp_path / "starts"
    monkeypatch.setenv("SYN_STARTS", str(starts))
    stopped = [stopped_often(made, tmp_path / "b", seed + at) for at, made in enumerate(sweeps)]
    for whole, (resumed, trained) in zip(undisturbed, stopped, strict=True):
        assert table(resumed) == table(whole) and trained == whole.trained
    trained_ids = [line.split()[0] for line in starts.read_text().splitlines()]
    assert len(trained_ids) == len({*trained_ids}) == sum(made.trained for made in undisturbed)
    # without the earlier sweep the same search proposes something else
    cold = run(plan("second", sampler=sampler, startup=6), tmp_path / "c")
    assert params(cold) != params(undisturbed[1])


def test_an_unknown_sweep_is_refused(tmp_path: Path) -> None:
    run(plan("first"), tmp_path)
    with pytest.raises(ConfigError, match="warm_start: 'frist' is no sweep of the ledger"):
        run(plan("second", warm_start="frist"), tmp_path)
    with pytest.raises(ConfigError, match="exclude each other"):
        plan("second", warm_start="first", folds=2)
