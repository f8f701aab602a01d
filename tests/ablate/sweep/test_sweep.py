"""Designs, plans and the sweep's logic, driven without Ray."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ablate.backends.this_process import find_cell
from ablate.ledger.ledger import Owner
from ablate.sweep import trial_queue
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain, finish, table
from trainables.jobs.request import Job
from trainables.words.errors import ConfigError

# --------------------------------------------------------------------------- plan


def test_layers_later_wins() -> None:
    given = specs.spec(
        trial__optimizer={"lr": 1e-3},
        datasets={"emoji": {"optimizer": {"lr": 2e-3}, "training.per_class": 2}},
        studies__grid__trial={"optimizer.lr": 3e-3},
    )
    assert specs.plan(given).resolve_config("tune", None).optimizer.lr == 1e-3
    chosen = specs.plan(given, dataset="emoji")
    assert chosen.resolve_config("tune", None).optimizer.lr == 2e-3
    assert chosen.resolve_config("tune", None).training.per_class == 2
    assert chosen.resolve_config("tune", None).data.name == "emoji"
    assert chosen.resolve_config("grid", None).optimizer.lr == 3e-3
    top = specs.plan(given, dataset="emoji", settings={"optimizer.lr": 4e-3})
    assert top.resolve_config("grid", None).optimizer.lr == 4e-3


def test_what_is_taken_and_then_dropped_is_refused() -> None:
    """The best temperature, then a later layer that names another loss, would be lost silently."""
    tuned = {
        "design": "search",
        "trials": 2,
        "trial": {"loss": {"name": "normsoftmax"}},
        "space": {"loss.temperature": {"low": 0.1, "high": 0.5}},
    }
    rows = {
        "design": "compare",
        "trial": {"loss": {"name": "proxy_anchor"}},
        "variants": {"a": {"around": {"best_of": "t"}, "trial": {"loss": {"name": "normsoftmax"}}}},
    }
    with pytest.raises(ConfigError, match=r"rows.variants.a.around.*temperature"):
        specs.plan({"name": "x", "studies": {"t": tuned, "rows": rows}})
    rows["trial"] = {"loss": {"name": "normsoftmax"}}
    specs.plan({"name": "x", "studies": {"t": tuned, "rows": rows}})


def test_sweep_id_names_what_runs_not_how_often() -> None:
    base = specs.plan().sweep_id
    assert specs.plan(specs.spec(seeds=5, title="x")).sweep_id == base
    assert specs.plan(specs.spec(studies__parts__evaluate=["val"])).sweep_id == base
    assert specs.plan(specs.spec(studies__parts__metrics=["density"])).sweep_id == base
    assert specs.plan(seeds=7).sweep_id == base
    assert specs.plan(specs.spec(studies__tune__trials=7)).sweep_id != base
    assert specs.plan(dataset="emoji").sweep_id != base
    assert specs.plan(settings={"optimizer.lr": 0.01}).sweep_id != base


# ------------------------------------------------------------------------ sweeping


def test_the_table_depends_on_neither_order_nor_parallelism(tmp_path: Path) -> None:
    first = dispatch(specs.plan(), tmp_path / "a")
    drain(first)
    second = dispatch(specs.plan(), tmp_path / "b")
    drain(second, at_once=5, choose=random.Random(1).choice)
    third = dispatch(specs.plan(), tmp_path / "c")
    drain(third, at_once=3, choose=max)
    assert table(first) == table(second) == table(third)
    assert {row["study"] for row in table(first)} == {"tune", "parts", "grid", "rows"}


def test_cells_centre_on_the_best_of_another_study(tmp_path: Path) -> None:
    made = dispatch(specs.plan(), tmp_path)
    drain(made)
    rows = table(made)
    tuned = [row for row in rows if row["study"] == "tune"]
    best = max(tuned, key=lambda row: row["val/map_at_r"])
    whole = [r for r in rows if r["cell"] == "agnostic=on,specific=on" and r["seed"] == 0]
    config = made.ledger.get_trial(whole[0]["trial_id"])["config"]  # type: ignore[index]
    assert config["optimizer"]["lr"] == best["coords/optimizer.lr"]
    assert config["method"]["alpha"] == best["coords/method.alpha"]
    assert whole[0]["trial_id"] == best["trial_id"], "the best cell itself is trained once"
    base = next(r for r in rows if r["cell"] == "base")
    config = made.ledger.get_trial(base["trial_id"])["config"]  # type: ignore[index]
    assert config["method"] == {"name": "plain"}
    assert config["optimizer"]["lr"] == best["coords/optimizer.lr"]


def test_shared_cells_train_once_and_a_new_split_trains_nothing(tmp_path: Path) -> None:
    made = dispatch(specs.plan(), tmp_path)
    order = drain(made)
    trained = [entry for entry in order if entry.endswith("train")]
    assert len(trained) == len(set(trained)) == len({row["trial_id"] for row in table(made)})
    # The search's best was trained on val alone; the components read test of it as well.
    assert [entry for entry in order if entry.endswith("evaluate")]
    again = dispatch(specs.plan(), tmp_path)
    assert again.is_exhausted and drain(again) == []


def test_a_larger_budget_goes_on_from_the_smaller_one(tmp_path: Path) -> None:
    small = dispatch(specs.plan(), tmp_path)
    drain(small)
    large = dispatch(specs.plan(specs.spec(studies__tune__trials=9)), tmp_path)
    before = {row["trial_id"] for row in table(small) if row["study"] == "tune"}
    drain(large)
    after = {row["trial_id"] for row in table(large) if row["study"] == "tune"}
    assert before < after and len(after) == 9


def test_force_runs_a_held_trial_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_queue, "WAIT_SECONDS", 0.0)
    plan = specs.plan(specs.spec(studies={"grid": specs.SPEC["studies"]["grid"]}))
    drain(dispatch(plan, tmp_path))
    other, made = Owner("elsewhere", 1, 1.0), dispatch(plan, tmp_path, force=True)
    held = min(row["trial_id"] for row in table(made))
    assert made.ledger.hold(held, other)
    while (job := made.claim_next_job()) is not None:
        finish(made, job.trial_id)
    made.ledger.release_hold(held, other)
    assert drain(made) == [f"{held} train"]


def test_more_seeds_top_up(tmp_path: Path) -> None:
    drain(dispatch(specs.plan(), tmp_path))
    order = drain(dispatch(specs.plan(seeds=3), tmp_path))
    assert order and all(entry.split()[0].endswith("-s2") for entry in order)


def test_a_proposal_that_breaks_a_rule_is_a_failed_fact(tmp_path: Path) -> None:
    space = {
        "schedule.warmup_epochs": {"low": 0, "high": 2, "int": True},
        "training.epochs": {"low": 1, "high": 3, "int": True},
    }
    made = dispatch(
        specs.plan(
            specs.spec(
                studies__tune__space=space, studies__tune__trials=12, studies__tune__startup=12
            )
        ),
        tmp_path,
    )
    drain(made)
    rows = [row for row in table(made) if row["study"] == "tune"]
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(rows) == 12 and failed and "nothing would train" in failed[0]["reason"]


def test_cells_are_found_by_name_and_number(tmp_path: Path) -> None:
    made = dispatch(specs.plan(), tmp_path)
    with pytest.raises(ConfigError, match="no cell of parts is known yet"):
        find_cell(made.progression, "parts/agnostic=off")
    drain(made)
    assert find_cell(made.progression, "tune/0003").idx == 3
    found = find_cell(made.progression, "parts/agnostic=off,specific=on@1")
    assert (found.cell, found.seed) == ("agnostic=off,specific=on", 1)
    assert find_cell(made.progression, "rows/base").seed == 0
    for wrong, word in [
        ("part/x", "'parts'"),
        ("parts/agnostic=off", "has no cell 'agnostic=off'; it has agnostic=o"),
        ("rows/x", "has no cell 'x'; it has base"),
        ("rows/base@9", "has no cell 'base@9'; it has base"),
    ]:
        with pytest.raises(ConfigError, match=word):
            find_cell(made.progression, wrong)


def test_epochs_lost_on_the_way_come_with_the_end(tmp_path: Path) -> None:
    made = dispatch(specs.plan(), tmp_path)
    job = made.claim_next_job()
    assert job is not None
    events = list(synthetic.run_job(prepared(job)))
    made.record_events(job.trial_id, [events[-1]])
    assert [e["epoch"] for e in made.ledger.list_epochs(job.trial_id)] == [1, 2, 3]


def prepared(job: Job) -> Job:
    job.runtime.trial_dir.mkdir(parents=True)
    return job


def test_one_study_runs_with_what_it_is_centred_on(tmp_path: Path) -> None:
    whole = specs.plan()
    part = specs.plan(studies=("parts",))
    assert part.sweep_id == whole.sweep_id and part.order == ("tune", "parts")
    made = dispatch(part, tmp_path)
    drain(made)
    assert {row["study"] for row in table(made)} == {"tune", "parts"}
    rest = dispatch(whole, tmp_path)
    drain(rest)
    assert {row["study"] for row in table(rest)} == set(whole.spec.studies)
    with pytest.raises(ConfigError, match=r"--study: the study 'part' is unknown.*parts"):
        specs.plan(studies=("part",))
