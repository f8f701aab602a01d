"""`ablate submit` around Slurm's stand-ins: what is submitted, what is lost, what is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ablate.backends import slurm as follower_module
from ablate.backends import submission as record
from ablate.backends.slurm import Follower
from ablate.backends.submission import Submission, list_submissions
from ablate.cli.main import main
from ablate.engine.driver_status import DriverStatusFile
from ablate.ledger.ledger import Ledger, Owner
from ablate.plan.plan import Plan
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import facts, synthetic_settings
from tests.ablate.backends.slurm import Cluster
from tests.ablate.driven import dispatch, drain
from trainables.words.errors import ConfigError

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-4, 1e-3]}, "seeds": 1}
SEARCH = {**specs.SPEC["studies"]["tune"], "trials": 4, "round": 2, "startup": 2}
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path / "slurm", tmp_path / "out")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def sweep(**studies: Any) -> Plan:
    return specs.plan({**specs.spec(), "studies": studies})


def follower(plan: Plan, cluster: Cluster, n_trials: int = 1, **more: Any) -> Follower:
    settings = synthetic_settings(cluster.out, **more)
    return Follower(plan, settings, ["--partition=gpu"], n_trials, limit=8, stop=cluster)


def test_a_whole_sweep_equals_a_run(cluster: Cluster, tmp_path: Path) -> None:
    """Rounds, promoted settings, a shared trial that is evaluated further, an ensemble."""
    folds = {**GRID, "folds": 2, "evaluate": ["val", "test", "ensemble"]}
    plan = sweep(**specs.SPEC["studies"], folds=folds)
    drain(dispatch(plan, tmp_path / "run"))
    made = follower(plan, cluster)
    made.run()
    assert made.describe_rest() == ""
    assert facts(tmp_path / "run") == facts(cluster.out)
    counts = [len(trials) for trials in cluster.jobs().values()]
    assert all(" --partition=gpu --job-name=" in call for call in cluster.calls)
    assert all(f"--array=1-{n}%8 " in c for n, c in zip(counts, cluster.calls, strict=True))
    before = len(cluster.calls)
    follower(plan, cluster).run()
    assert len(cluster.calls) == before, "all is known"


@pytest.mark.parametrize(("sbatch", "device"), [(None, "cpu"), (["--partition=gpu"], "cuda")])
def test_features_are_looked_for_on_the_device_of_the_tasks(
    sbatch: list[str] | None, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device `auto` names no features."""
    (tmp_path / "out").mkdir()
    settings = replace(synthetic_settings(tmp_path / "out"), reads_data=True)
    made = Follower(
        sweep(grid=GRID),
        replace(settings, request=replace(settings.request, device="auto")),
        sbatch,
    )
    devices = list[str]()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(follower_module, "check_inputs", lambda *given: devices.append(given[-1]))
    monkeypatch.setattr(follower_module, "check_data", lambda *_: None)
    monkeypatch.setattr(Follower, "run", lambda self, detach: None)
    made.submit(detach=False)
    assert devices == [device]


class Killed(BaseException):
    """As if the process had been killed."""


def test_killed_at_any_point_it_goes_on_and_submits_nothing_twice(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step that leaves something behind, in each round of a search."""
    left = [0]

    def killing(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            for run in (lambda: None, lambda: function(*args, **named)):
                result = run()
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
            return result

        return step

    for where, name in (
        (follower_module, "list_ready_trials"),
        (follower_module, "write_entries"),
        (follower_module, "import_batch"),
        (record, "write_atomically"),
        (Submission, "launch"),
        (Submission, "has_job"),
    ):
        monkeypatch.setattr(where, name, killing(getattr(where, name)))
    plan, kills = sweep(tune=SEARCH), 0
    drain(dispatch(plan, tmp_path / "run"))
    for steps in range(1000):
        left[0] = steps
        try:
            follower(plan, cluster).run()
            break
        except Killed:
            kills += 1
    assert kills > 8 and facts(tmp_path / "run") == facts(cluster.out)
    trials = [trial for trials in cluster.jobs().values() for trial in trials]
    assert len(trials) == len(set(trials)) == 4 and len(cluster.calls) == 2


def test_a_job_is_found_by_its_name(cluster: Cluster) -> None:
    """By squeue where sbatch failed after all, by sacct when its tasks have ended."""
    plan = sweep(grid=GRID)
    (cluster.folder / "kill").write_text("silent\n")
    follower(plan, cluster).run(detach=True)
    (submission,) = list_submissions(cluster.out)
    assert submission.job_id == "100"
    (submission.folder / "answer").unlink()
    cluster.wait()
    follower(plan, cluster).run()
    assert len(cluster.calls) == 1 and list_submissions(cluster.out)[0].job_id == "100"


def test_a_job_that_another_command_submitted_is_followed(cluster: Cluster) -> None:
    plan = sweep(grid=GRID)
    follower(plan, cluster).run(detach=True)
    (submission,) = list_submissions(cluster.out)
    assert submission.job_id == "100" and not submission.ended
    again = follower(plan, cluster)
    again.run(detach=True)
    assert "Slurm job 100 goes on without this command" in again.describe_rest()
    with pytest.raises(ConfigError, match="Slurm job 100 runs trials of another spec"):
        follower(sweep(other=SEARCH), cluster).run()
    (cluster.folder / "down").touch()
    with pytest.raises(record.QueryError, match="Unable to contact controller"):
        follower(plan, cluster).run(detach=True)
    (cluster.folder / "down").unlink()
    follower(plan, cluster).run()
    assert len(cluster.calls) == 1 and list_submissions(cluster.out)[0].ended


def test_slurm_that_is_down_for_a_while_is_waited_for(cluster: Cluster, capsys: Captured) -> None:
    made, down = follower(sweep(grid=GRID), cluster), cluster.folder / "down"
    made.run(detach=True)
    down.touch()
    cluster.fate = lambda trials: down.unlink(missing_ok=True)
    made.run()
    assert len(cluster.calls) == 1 and list_submissions(cluster.out)[0].ended
    assert "Slurm does not answer (slurm_load_jobs error" in capsys.readouterr().out


def test_lost_tasks_are_told_and_tried_four_times(cluster: Cluster, capsys: Captured) -> None:
    """Four times without progress: the first task has begun the trial."""
    plan, states = sweep(grid=GRID), ["TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "FAILED", "FAILED"]

    def lose_one(trials: list[str]) -> str | None:
        (cluster.out / "trials" / trials[0]).mkdir(parents=True, exist_ok=True)
        return states[len(cluster.jobs()) - 1] if trials[0].startswith("8d") else None

    cluster.fate = lose_one
    made = follower(plan, cluster)
    made.run()
    (trial,) = made.given_up
    assert [len(trials) for trials in cluster.jobs().values()] == [2, 1, 1, 1, 1]
    log = f"{1 + cluster.jobs()['100'].index(trial)}.log"
    text = capsys.readouterr().err
    assert "Slurm job 100: 1 trials have no result, and their tasks have ended: 1 TIMEOUT" in text
    assert f"{list_submissions(cluster.out)[0].folder}/{log})" in text
    assert [state in text for state in states] == [True] * 5
    assert "4 tasks of each ended without progress" in made.describe_rest()
    follower(plan, cluster).run()
    assert len(cluster.calls) == 5, "the same command does not begin to count anew"
    cluster.fate = lambda trials: None
    again = follower(plan, cluster, retry_failed=True)
    again.run()
    assert len(cluster.calls) == 6 and again.describe_rest() == ""


def test_a_trial_that_makes_progress_is_not_given_up(cluster: Cluster) -> None:
    def stop_early(trials: list[str]) -> str | None:
        (checkpoints := cluster.out / "trials" / trials[0] / "checkpoints").mkdir(
            parents=True, exist_ok=True
        )
        (checkpoints / f"steps-{len(cluster.jobs()):010d}-best-000000.pt").touch()
        return "TIMEOUT" if len(cluster.jobs()) < 7 else None

    cluster.fate = stop_early
    made = follower(sweep(grid=GRID), cluster)
    made.run()
    assert len(cluster.calls) == 7 and made.describe_rest() == ""


def test_a_trial_that_its_tasks_never_reached_is_not_given_up(cluster: Cluster) -> None:
    """Four times a task of all trials ends in its first trial; the fifth runs them all."""

    def stop_in_first(trials: list[str]) -> str | None:
        trial = next((t for t in trials if not (cluster.out / "trials" / t).exists()), trials[0])
        (cluster.out / "trials" / trial).mkdir(parents=True, exist_ok=True)
        return "NODE_FAIL" if len(cluster.jobs()) < 5 else None

    cluster.fate = stop_in_first
    grid = {**GRID, "grid": {"optimizer.lr": [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3]}}
    made = follower(sweep(grid=grid), cluster, n_trials=8)
    made.run()
    assert len(cluster.calls) == 5 and made.describe_rest() == ""


def test_what_a_user_cancels_is_not_submitted_again_at_once(cluster: Cluster) -> None:
    cluster.fate = lambda trials: "CANCELLED by 1000"
    made = follower(sweep(grid=GRID), cluster)
    made.run()
    assert len(cluster.calls) == 1 and made.describe_rest() == "Stopped."
    cluster.clear()
    cluster.fate = lambda trials: None
    follower(sweep(grid=GRID), cluster).run()
    assert len(cluster.calls) == 2 and follower(sweep(grid=GRID), cluster).run() is None


def test_failed_trials_are_facts_and_tried_again_on_request(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYN_FAIL", "5e-4")
    plan = sweep(tune=SEARCH)
    follower(plan, cluster).run()
    with Ledger(cluster.out / "ledger.sqlite") as ledger:
        failed = ledger.query("SELECT * FROM trials WHERE status='failed'")
    assert failed and len(cluster.calls) == 2
    monkeypatch.delenv("SYN_FAIL")
    follower(plan, cluster, retry_failed=True).run()
    again = [trial for job, trials in cluster.jobs().items() if job > "101" for trial in trials]
    assert sorted(again) == sorted(row["trial_id"] for row in failed)
    with Ledger(cluster.out / "ledger.sqlite") as ledger:
        assert not ledger.query("SELECT * FROM trials WHERE status!='done'")


def test_a_refusal_of_sbatch_is_shown_and_forgotten(cluster: Cluster) -> None:
    refuse = cluster.folder / "refuse"
    refuse.write_text("sbatch: error: invalid partition specified: gpu\n")
    with pytest.raises(ConfigError, match="refused the job: sbatch: error: invalid partition spec"):
        follower(sweep(grid=GRID), cluster).run()
    assert list_submissions(cluster.out) == []
    refuse.unlink()
    follower(sweep(grid=GRID), cluster).run()
    (submission,) = list_submissions(cluster.out)
    assert submission.ended and len(cluster.jobs()) == 1


def test_one_driver_at_a_time(cluster: Cluster) -> None:
    made, owner = follower(sweep(grid=GRID), cluster), Owner.from_this_process()
    refusal = pytest.raises(ConfigError, match="another command runs a sweep in this folder")
    with DriverStatusFile(cluster.out, owner, "x", "other", lambda: None), refusal:
        made.submit(detach=True)
    with FileLock(cluster.out / "submitted" / "lock"), refusal:
        made.submit(detach=True)
    assert made.submit(detach=True) is None and made.current is not None


def test_status_shows_the_array(cluster: Cluster, capsys: Captured) -> None:
    follower(sweep(grid=GRID), cluster).run(detach=True)
    out, (submission,) = str(cluster.out), list_submissions(cluster.out)
    assert main(["status", "--out", out]) == 0
    text = capsys.readouterr().out
    assert f"Slurm job 100 ({submission.folder}): 2 PENDING (Resources)" in text
    assert "grid: 0 of 2 known trials done" in text
    assert main(["status", "--json", "--out", out]) == 0
    (state,) = json.loads(capsys.readouterr().out)["sweeps"]
    assert state["submitted"] in text
    (cluster.folder / "down").touch()
    owner = Owner.from_this_process()
    with DriverStatusFile(cluster.out, owner, submission.sweep_id, "grid", lambda: None):
        assert main(["status", "--out", out]) == 0
    text = capsys.readouterr().out
    assert "Slurm does not answer" in text and f"(process {os.getpid()} on " in text


def test_local_processes_hold_a_lock_while_they_live(tmp_path: Path) -> None:
    folder = tmp_path / record.FOLDER / "ablate-0"
    made = Submission(folder=folder, is_local=True, sweep_id="s", tasks=1, progress={"a": ""})
    made.write()
    assert not made.has_job() and made.list_states() == []
    script = f"until [[ -e {folder}/end ]]; do sleep 0.02; done"
    made.start_tasks(["bash", "-c", script], (), None)
    (known,) = list_submissions(tmp_path)
    assert known.has_job() and os.killpg(int(made.job_id), 0) is None
    assert known.list_states() == ["RUNNING"]
    (folder / "end").touch()
    deadline = time.monotonic() + 10
    while known.list_states():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--slurm", "gpu"], "there is no command sbatch on this machine"),
        (["--local", "2", "--gpus", "8"], "--gpus and --sbatch need --slurm"),
        (["--local", "2", "--sbatch=--time=1"], "--gpus and --sbatch need --slurm"),
    ],
)
def test_wrong_options_get_one_sentence(
    words: list[str], message: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["submit", "spec.yaml", *words]) == 2
    text = capsys.readouterr().err
    assert message in text and text.count("\n") == 1


def test_levels_choose_the_studies_that_are_submitted(tmp_path: Path, capsys: Captured) -> None:
    study = {"for": ["size"], **GRID}
    spec = {"name": "levels", "factors": {"size": {"small": {}}}, "studies": {"{size}": study}}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    words = ["--local", "1", "--levels", "size=tiny", "--out", str(tmp_path / "out")]
    assert main(["submit", str(tmp_path / "spec.yaml"), *words]) == 2
    assert "--levels: the level 'tiny' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["--time=1 -M other", "--clusters=a", "--x='"])
def test_options_that_hide_a_job_are_refused(
    options: str, cluster: Cluster, capsys: Captured
) -> None:
    assert main(["submit", "spec.yaml", "--slurm", "gpu", f"--sbatch={options}"]) == 2
    text = capsys.readouterr().err
    assert "--sbatch" in text and text.count("\n") == 1


def test_a_damaged_record_is_named(cluster: Cluster) -> None:
    follower(sweep(grid=GRID), cluster).run(detach=True)
    (list_submissions(cluster.out)[0].folder / "job.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"job.json: this record is unusable"):
        follower(sweep(grid=GRID), cluster).run()
