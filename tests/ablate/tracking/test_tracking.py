"""The tracker: MLflow holds what the ledger holds, whatever happened on the way."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from mlflow.exceptions import MlflowException

from ablate.ledger.ledger import Ledger, Owner
from ablate.tracking import sync
from ablate.tracking.payload import choose_parameters, flatten_config
from ablate.tracking.store import open_store
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import replay
from reports.frame import load_frame
from tests.ablate.tracking.store import (
    assert_complete,
    children,
    finish_some,
    history,
    parent_run,
    runs,
    wait_until,
)


def artifacts(sweep: Any, run: Any) -> Path:
    return Path(sweep.folder / "mlartifacts" / run.info.run_id / "artifacts")


@pytest.mark.slow
def test_looks_of_earlier_runs_reach_the_reports(finished: Any) -> None:
    looks = [["grid", 2], ["tuned", 3]]
    with Ledger(finished.ledger_path) as ledger:
        for study, seeds in looks:
            ledger.put_look(finished.sweep_id, study, seeds)
        more = [cell | {"seed": 7} for cell in ledger.list_cells(finished.sweep_id)]
        ledger.put_cells(finished.sweep_id, [cell for cell in more if cell["study"] == "tuned"])
    replay(finished.ledger_path, MlflowTracker(finished.uri), finished.sweep_id)
    found = load_frame(finished.uri, finished.sweep_id)
    assert found.document["looks"] == looks
    assert (found.count_looks("tuned"), found.count_looks("grid")) == (2, 1)


@pytest.mark.slow
def test_layout_is_the_contract_s(finished: Any) -> None:
    parent = parent_run(finished)
    assert parent.info.status == "FINISHED"
    experiment = open_store(finished.uri).get_experiment(parent.info.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert parent.data.tags["ablate.folder"] == str(finished.folder)
    expected = {"mlflow.runName": "ddml", "ablate.git_dirty": "false"}
    assert parent.data.tags.items() >= (expected | {"ablate.version.ray": "2.60.0"}).items()
    document = json.loads((artifacts(finished, parent) / "sweep.json").read_text())
    assert document["study_order"] == ["tune", "table4", "tuned", "grid"]
    assert document["report"]["best"] == ["tune"]
    with Ledger(finished.ledger_path) as ledger:
        cells = ledger.list_cells(finished.sweep_id)
        for trial_id, run in children(finished).items():
            tags, trial = run.data.tags, ledger.get_trial(trial_id)
            filled = [c for c in cells if c["trial_id"] == trial_id]
            expected = {
                "mlflow.parentRunId": parent.info.run_id,
                "ablate.status": trial["status"],
                "ablate.reason": trial["reason"] or "",
                "ablate.seed": str(trial["seed"]),
                "study": filled[0]["study"],
                "cell": filled[0]["cell"],
            }
            assert tags.items() >= expected.items()
            assert not [name for name in tags if name.startswith(("ablate.git", "ablate.version"))]
            names = [c["cell"] for c in json.loads(tags["ablate.cells"])]
            assert names == [c["cell"] for c in filled]
            assert run.data.params["optimizer.betas"] == "[0.9, 0.999]"
            assert run.data.params == dict(flatten_config(trial["config"]))
            if trial["status"] == "done":
                assert tags["ablate.device"] == "cpu" and tags["ablate.threads"] == "1"
                assert run.info.status == "FINISHED"
                assert run.data.metrics["final/best_epoch"] == trial["best_epoch"]
                assert tags["ablate.export"] == f"trials/{trial_id}/{trial['export']}"
                digest = trial["provenance"]["data_fingerprint"]
                assert tags["ablate.data_fingerprint"] == digest
            else:
                assert run.info.status == "FAILED" and tags["ablate.reason"].startswith("term")


def test_trials_are_written_while_they_run(sweep: Any) -> None:
    trial = sweep.plan(seeds=1)[0]
    tracker = sweep.tracker(interval=0.05)
    tracker.start()
    sweep.finish([trial], epochs=2, final=False)
    tracker.notify(trial)
    wait_until(lambda: trial in children(sweep) and children(sweep)[trial].data.metrics)
    run = children(sweep)[trial]
    assert run.info.status == "RUNNING"
    assert [step for step, _ in history(sweep, run, "train/loss")] == [1, 2]
    sweep.finish([trial], epochs=4)
    tracker.notify(trial)
    assert tracker.close()
    assert_complete(sweep, [trial])


def test_a_run_that_is_deleted_in_mid_sweep_is_made_again(sweep: Any) -> None:
    (trial,) = sweep.plan(seeds=1)[:1]
    sweep.finish([trial], epochs=2, final=False)
    with Ledger(sweep.ledger_path) as ledger:
        replica = MlflowTracker(sweep.uri)
        replica.open(ledger, sweep.sweep_id)
        replica.sync()
        deleted = children(sweep)[trial].info.run_id
        replica.client.delete_run(deleted)
        sweep.finish([trial], epochs=4)
        with pytest.raises(MlflowException, match="'active'"):  # the tracker tries again
            replica.sync([trial])
        replica.sync(status="FINISHED")
        assert replica.refused == {} and children(sweep)[trial].info.run_id != deleted
    assert_complete(sweep, [trial])


@pytest.mark.parametrize("reason", ["force", "other code"])
def test_a_trial_that_begins_again_gets_a_new_run(sweep: Any, reason: str) -> None:
    """MLflow shows the value of the highest step, and a smaller best epoch would never be seen."""
    (trial,) = sweep.plan(seeds=1)[:1]
    sweep.finish([trial], final=reason == "force")
    sweep.track()
    before = children(sweep)[trial].info.run_id
    with Ledger(sweep.ledger_path) as ledger:
        if reason == "force":
            assert ledger.claim(trial, "", 0, {}, Owner.from_this_process(), force=True) == "mine"
        else:
            ledger.delete_epochs(trial)
    sweep.finish([trial], epochs=1, final=False)
    sweep.track()
    sweep.finish([trial], epochs=2)
    sweep.track()
    assert_complete(sweep, [trial])
    run = children(sweep)[trial]
    assert run.info.run_id != before and run.data.metrics["final/best_epoch"] == 2


def test_a_claim_while_the_run_is_written_is_noticed(
    sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trial,) = sweep.plan(seeds=1)[:1]
    sweep.finish([trial])
    with Ledger(sweep.ledger_path) as ledger, monkeypatch.context() as claiming:
        replica = MlflowTracker(sweep.uri)
        replica.open(ledger, sweep.sweep_id)
        owner = Owner.from_this_process()
        claiming.setattr(
            sync, "log_batches", lambda *_: ledger.claim(trial, "", 0, {}, owner, force=True)
        )
        replica.sync()
    sweep.finish([trial], epochs=2)
    sweep.track()
    assert_complete(sweep, [trial])


def points(sweep: Any, run: Any) -> dict[str, list[tuple[float, int, int]]]:
    """Key → every point of it."""
    client = open_store(sweep.uri)
    histories = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {key: [(p.value, p.timestamp, p.step) for p in ps] for key, ps in histories.items()}


def test_later_evaluations_and_cells_reach_the_run(sweep: Any) -> None:
    """One that is broken off moves nothing; one by a newer evaluator is what MLflow shows."""
    trial = sweep.plan(seeds=1)[0]
    sweep.finish([trial])
    sweep.track()
    run = children(sweep)[trial]
    before = points(sweep, run)
    sweep.track(f"{sweep.uri}?timeout=30")  # the same file, with an option for its driver
    again = children(sweep)[trial]
    assert again.info.end_time == run.info.end_time and points(sweep, again) == before
    dead = Owner(Owner.from_this_process().host, 2**22 + 12345, 1.0)
    with Ledger(sweep.ledger_path) as ledger:
        assert ledger.claim_evaluation(trial, dead) == "mine"
        assert ledger.release_dead() == [trial]
        more = {"evaluations": {"extra": {"recall_at_8": 0.5}}, "evaluator": "retrieval-1"}
        ledger.record_final(trial, more, trained=False)
        newer = {"evaluations": {"test": {"recall_at_1": 0.01}}, "evaluator": "retrieval-2"}
        ledger.record_final(trial, newer, trained=False)
        ledger.put_cells(
            sweep.sweep_id,
            [{"study": "more", "cell": "x", "seed": 0, "trial_id": trial, "coords": {}, "idx": 0}],
        )
    sweep.track()
    run = children(sweep)[trial]
    assert run.data.metrics["final/extra/recall_at_8"] == 0.5
    assert run.data.metrics["final/test/recall_at_1"] == 0.01
    assert "more" in {cell["study"] for cell in json.loads(run.data.tags["ablate.cells"])}
    assert_complete(sweep, [trial])
    after = points(sweep, run)
    assert after.pop("final/test/recall_at_1")[:1] == before.pop("final/test/recall_at_1")
    assert len(after.pop("final/extra/recall_at_8")) == 1
    assert after == before, "a point was logged once more, or moved"


def test_an_epoch_that_is_told_late_reaches_the_run(sweep: Any) -> None:
    """A driver is killed before it hears of epoch 2; the next attempt goes on with epoch 3."""
    trial = sweep.plan(seeds=1)[0]
    sweep.finish([trial], epochs=4, final=False)
    with Ledger(sweep.ledger_path) as ledger:
        epochs = ledger.list_epochs(trial)
        with ledger.begin_transaction() as db:
            db.execute("DELETE FROM epochs WHERE epoch=2")
        sweep.track()
        steps = [step for step, _ in history(sweep, children(sweep)[trial], "train/loss")]
        assert steps == [1, 3, 4]
        ledger.record_epochs(trial, epochs)
    sweep.finish([trial])
    sweep.track()
    assert_complete(sweep, [trial])
    assert {len(written) for written in points(sweep, children(sweep)[trial]).values()} == {1, 4}


def test_the_last_of_two_drivers_ends_the_parent(sweep: Any) -> None:
    sweep.plan(seeds=1)
    with Ledger(sweep.ledger_path) as ledger:
        this = Owner.from_this_process()
        other = Owner(this.host, os.getppid(), psutil.Process(os.getppid()).create_time())
        first, second = MlflowTracker(sweep.uri), MlflowTracker(sweep.uri)
        for replica in (first, second):
            replica.open(ledger, sweep.sweep_id)
        first.driver = str(other)
        for writer in (first, second):
            writer.sync([])
        first.sync([], status="FINISHED")
        assert [run.info.status for run in runs(sweep)] == ["RUNNING"]
        second.sync([], status="FINISHED")
        assert [run.info.status for run in runs(sweep)] == ["FINISHED"]


def test_store_that_fails_now_and_then_loses_and_doubles_nothing(
    sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers lost on the way back too: the run was made, the client saw an error."""
    from mlflow import MlflowClient

    calls = Counter[str]()

    def flaky(name: str, *, after: bool) -> None:
        original = getattr(MlflowClient, name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            if calls[name] in (1, 4):
                if after:
                    original(self, *args, **kwargs)
                raise ConnectionError("connection reset")
            return original(self, *args, **kwargs)

        monkeypatch.setattr(MlflowClient, name, method)

    flaky("create_run", after=True)
    flaky("log_batch", after=True)
    flaky("set_terminated", after=False)
    trials = finish_some(sweep, 5)
    tracker = sweep.tracker()
    tracker.start()
    assert tracker.close()
    assert min(calls[name] for name in ("create_run", "log_batch", "set_terminated")) > 4
    assert_complete(sweep, trials)


@pytest.mark.parametrize("what", ["database", "run"])
def test_what_mlflow_lost_is_written_again(sweep: Any, empty_store: Path, what: str) -> None:
    trials = finish_some(sweep, 3)
    sweep.track()
    uri = sweep.uri
    if what == "database":
        uri = f"sqlite:///{sweep.folder}/second.db"  # the lost one, under another name
        shutil.copy(empty_store, sweep.folder / "second.db")
        with Ledger(sweep.ledger_path) as ledger, ledger.begin_transaction() as database:
            database.execute("UPDATE mlflow_runs SET store=?", [uri])
    else:
        open_store(uri).delete_run(children(sweep)[trials[0]].info.run_id)
    assert replay(sweep.ledger_path, MlflowTracker(uri), sweep.sweep_id)[1] == {}
    assert_complete(sweep, trials, uri)


def lose_ledger(sweep: Any) -> None:
    for path in sweep.folder.glob("ledger.sqlite*"):
        path.unlink()


def test_a_new_ledger_takes_over_the_runs_of_a_lost_one(sweep: Any) -> None:
    first, second, third, fourth = finish_some(sweep, 4)
    sweep.track()
    parent, before = parent_run(sweep), children(sweep)
    lose_ledger(sweep)
    sweep.plan(seeds=1)
    sweep.finish([first], epochs=6)
    sweep.finish([second], epochs=2, final=False)
    sweep.track()
    after = children(sweep)
    assert parent_run(sweep).info.run_id == parent.info.run_id
    assert parent_run(sweep).data.tags["ablate.ledger"] != parent.data.tags["ablate.ledger"]
    # a trial that begins again has a new run; what only the lost ledger had stays
    assert {trial for trial in before if after[trial].info.run_id != before[trial].info.run_id} == {
        first,
        second,
    }
    assert after[third].data.metrics == before[third].data.metrics
    sweep.finish([second], epochs=4)
    sweep.finish([third, fourth], epochs=3)
    sweep.track()
    assert_complete(sweep, [first, second, third, fourth])
    sweep.track()  # changes nothing
    assert_complete(sweep, [first, second, third, fourth])


def test_ledgers_of_two_folders_have_runs_of_their_own(sweep: Any, tmp_path: Path) -> None:
    """Each may be in use, and would write its points into the other's runs."""
    trials = finish_some(sweep, 2)
    sweep.track()
    other = dataclasses.replace(sweep, folder=tmp_path / "other")
    other.folder.mkdir()
    assert finish_some(other, 2) == trials
    other.track(sweep.uri)
    for each in (sweep, other):
        each.track(sweep.uri)
    found = Counter(run.data.tags.get("ablate.trial_id", "") for run in runs(sweep))
    assert found == dict.fromkeys(["", *trials], 2)


def test_runs_that_a_live_driver_writes_are_left_to_it(sweep: Any) -> None:
    (trial,) = finish_some(sweep, 1)
    sweep.track()
    parent = psutil.Process(os.getppid())
    alive = Owner(Owner.from_this_process().host, parent.pid, parent.create_time())
    open_store(sweep.uri).set_tag(parent_run(sweep).info.run_id, "ablate.driver", str(alive))
    before = {run.info.run_id for run in runs(sweep)}
    lose_ledger(sweep)
    assert finish_some(sweep, 1) == [trial]
    sweep.track()
    assert before < {run.info.run_id for run in runs(sweep)}


@pytest.mark.slow
def test_four_processes_may_be_the_first_to_use_a_store(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/fresh/mlflow.db"
    code = f"""
from ablate.tracking.store import get_or_create_experiment, open_store
client = open_store({uri!r})
run = client.create_run(get_or_create_experiment(client, {uri!r}, "shared"))
client.log_metric(run.info.run_id, "x", 1.0)
"""
    command, root = [sys.executable, "-c", code], Path(__file__).parents[3]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, cwd=root, **pipes) for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=200)
        assert (process.returncode, out) == (0, b""), err.decode()[-2000:]
    client = open_store(uri)
    experiment = client.get_experiment_by_name("shared")
    assert len(client.search_runs([experiment.experiment_id])) == 4
    assert experiment.artifact_location == (tmp_path / "fresh" / "mlartifacts").as_uri()


def test_only_settings_that_vary_or_differ_from_defaults_are_parameters(sweep: Any) -> None:
    """The first trial is written before any other shows which settings vary."""
    defaults = {
        "": {"loss.name": "proxy_anchor", "optimizer.betas": [0.9, 0.999], "optimizer.lr": 1e-3},
        "loss.normsoftmax": {"loss.temperature": 0.05},
        "method.ddml": {"method.beta": 0.0},
    }
    trials = sweep.plan(seeds=1, studies=("tune", "tuned"))
    with Ledger(sweep.ledger_path) as ledger:
        replica = MlflowTracker(sweep.uri, defaults=defaults)
        replica.open(ledger, sweep.sweep_id)
        sweep.finish(trials[:1])
        replica.sync()
        params = children(sweep)[trials[0]].data.params
        assert "method.alpha" in params and "method.beta" not in params  # alpha's is not known
        sweep.finish(trials[1:])
        replica.sync(status="FINISHED")
    written = children(sweep)
    always = {"data.name", "data.image_size", "data.split.protocol", "training.epochs"}
    always |= {"backbone.name", "backbone.mode", "loss.name", "method.name", "optimizer.lr"}
    ddml = {"method.alpha", "method.beta", "method.gamma"}
    with Ledger(sweep.ledger_path) as ledger:
        for trial_id, run in written.items():
            config = ledger.get_trial(trial_id)["config"]
            expected = always | (ddml if config["method"]["name"] == "ddml" else set())
            assert set(run.data.params) == expected
            assert run.data.params.items() <= dict(flatten_config(config)).items()
            assert yaml.safe_load((artifacts(sweep, run) / "config.yaml").read_text()) == config


def test_defaults_are_those_of_trials() -> None:
    from ablate.plan.resolve import list_default_settings
    from trainables.trial import TrialConfig

    changes = {"loss": {"name": "normsoftmax"}, "method": {"name": "ddml", "beta": 0.5}}
    config = TrialConfig.model_validate(changes).model_dump(mode="json")
    expected = {"loss.name": "normsoftmax", "method.name": "ddml", "method.beta": "0.5"}
    assert choose_parameters(config, list_default_settings(), ()) == expected
