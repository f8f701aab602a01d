"""TensorBoard's files and W&B's offline runs hold what the ledger holds, whatever happened."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger, Owner
from ablate.plugins.tensorboard_files import escape_name
from ablate.tracking.tracker import TrackerThread, build_trackers, replay
from tests.ablate.tracking.replicas import (
    assert_equal_to_ledger,
    read_events,
    read_offline_run,
)
from tests.ablate.tracking.store import finish_some
from tests.reports.conftest import Sweep
from trainables.words.errors import ConfigError

ROOT = Path(__file__).parents[3]
BOTH = ("tensorboard", "wandb")
KILLED = """
import os, sys, time
from pathlib import Path
from ablate.ledger.ledger import Ledger
from ablate.ledger.ledger import Owner
from ablate.tracking.tracker import build_trackers
from ablate.tracking.tracker import TrackerThread
from tests.ablate.synthetic import CONFIG
out, sweep_id, trial = Path(sys.argv[1]), *sys.argv[2:]
with Ledger(out / "ledger.sqlite") as ledger:
    ledger.claim(trial, "0" * 64, 0, CONFIG, Owner.from_this_process())
    trackers = build_trackers(("tensorboard", "wandb"), out)
    threads = [TrackerThread(ledger.path, tracker, sweep_id, interval=0.01) for tracker in trackers]
    for thread in threads:
        thread.start()
    for epoch in (1, 2):
        event = {"epoch": epoch, "steps": 1, "seconds": 1.0, "metrics": {"val/map_at_r": epoch / 3}}
        ledger.record_epochs(trial, [event])
        for thread in threads:
            thread.notify(trial)
        files = [*out.rglob("*tfevents*"), *out.rglob("*.wandb")]
        while len(files) < 2 or any(f.read_bytes().count(b"map_at_r") < epoch for f in files):
            time.sleep(0.05)
            files = [*out.rglob("*tfevents*"), *out.rglob("*.wandb")]
os._exit(9)
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "out")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No account, and no settings of the user."""
    import wandb

    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    wandb.teardown()  # which forgets the settings


def copy_to(sweep: Sweep, *options: str) -> None:
    for tracker in build_trackers(options, sweep.folder):
        thread = TrackerThread(sweep.ledger_path, tracker, sweep.sweep_id)
        thread.start()
        assert thread.close()


@pytest.mark.slow
def test_values_equal_the_ledger_s(sweep: Sweep) -> None:
    trials = sweep.plan(seeds=1, studies=("tune", "tuned"))
    sweep.finish(trials)
    copy_to(sweep, *BOTH)
    assert assert_equal_to_ledger(sweep.folder, sweep.sweep_id) == 8
    _, _, run = read_offline_run(sweep.folder, trials[-1])
    config = {item.key: item.value_json for item in run.config.update}
    assert (run.project, run.run_group, run.run_id) == ("ddml", "tuned", trials[-1])
    assert '"alpha":0.5' in config["method"].replace(" ", "") and config["seed"] == "0"
    before = {path: path.stat().st_mtime_ns for path in sweep.folder.rglob("*run*/*.wandb")}
    copy_to(sweep, *BOTH)  # nothing has changed
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.slow
def test_a_killed_process_loses_and_repeats_no_point(sweep: Sweep) -> None:
    (trial,) = sweep.plan(seeds=1, studies=("tune",))[:1]
    command = [sys.executable, "-c", KILLED, str(sweep.folder), sweep.sweep_id, trial]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 9
    (path,) = sweep.folder.rglob("*tfevents*")
    assert len(read_events(path.parent)["val/map_at_r"]) == 2
    path.write_bytes(path.read_bytes()[:-5])  # killed in the middle of a record
    with Ledger(sweep.ledger_path) as ledger:
        assert ledger.release_dead() == [trial]
        copy_to(sweep, *BOTH)  # an interrupted trial
        inode = path.stat().st_ino
        sweep.finish([trial])
        event = {"epoch": 5, "steps": 50, "seconds": 9.0, "metrics": {"val/map_at_r": 1.0}}
        ledger.record_epochs(trial, [event])
    copy_to(sweep, *BOTH)
    with Ledger(sweep.ledger_path) as ledger:
        cells = [c for c in ledger.list_cells(sweep.sweep_id) if c["trial_id"] == trial]
    assert len(cells) == 1 and path.stat().st_ino == inode  # TensorBoard follows the file
    history, _, _ = read_offline_run(sweep.folder, trial)
    assert [step for step, _ in history["val/map_at_r"]] == [1, 2, 3, 4, 5]
    assert [step for step, _ in read_events(path.parent)["val/map_at_r"]] == [1, 2, 3, 4, 5]


def test_a_trial_that_is_started_again_replaces_its_points(sweep: Sweep) -> None:
    (trial,) = finish_some(sweep, 1)
    copy_to(sweep, "tensorboard")
    with Ledger(sweep.ledger_path) as ledger:
        row = ledger.get_trial(trial)
        assert row is not None
        identity = (trial, row["config_hash"], row["seed"], row["config"])
        assert ledger.claim(*identity, Owner.from_this_process(), force=True) == "mine"
        event = {"epoch": 1, "steps": 1, "seconds": 1.0, "metrics": {"val/map_at_r": 0.25}}
        ledger.record_epochs(trial, [event])
    copy_to(sweep, "tensorboard")
    (path,) = sweep.folder.rglob("*tfevents*")
    assert read_events(path.parent) == {"val/map_at_r": [(1, 0.25)]}


def test_a_tracker_that_fails_stops_nothing_and_is_replayed(
    sweep: Sweep, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = sweep.plan(seeds=1, studies=("tune", "tuned"))
    sweep.finish(trials)
    (folder := sweep.folder / "tensorboard").write_text("a file, so that nothing can be written")
    (tracker,) = build_trackers(["tensorboard"], sweep.folder)
    thread = TrackerThread(
        sweep.ledger_path, tracker, sweep.sweep_id, interval=0.01, drain_seconds=0.5
    )
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        thread.start()
        for trial in trials * 20:
            thread.notify(trial)
        assert not thread.close()
    first, last = caplog.messages  # once when it begins to fail, and once at the end
    assert "TensorBoard (--tracker tensorboard): the store does not answer" in first
    assert "--tracker tensorboard` writes the 8 ended trials that TensorBoard lacks" in last
    replays = ["ledger", "replay", "--out", str(sweep.folder), "--tracker", "tensorboard"]
    assert main(replays) == 2
    assert "does not answer" in capsys.readouterr().err
    folder.unlink()
    assert main(replays) == 0
    assert "8 trials are in TensorBoard" in capsys.readouterr().out
    assert not (sweep.folder / "mlflow.db").exists()
    shutil.rmtree(folder)  # as on a machine that has the ledger alone
    assert replay(sweep.ledger_path, tracker, sweep.sweep_id) == (8, {})
    assert assert_equal_to_ledger(sweep.folder, sweep.sweep_id, wandb=False) == 8


def test_a_bug_in_a_tracker_reports_do_not_need_ends_no_command(
    sweep: Sweep, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_some(sweep, 1)
    (tracker,) = build_trackers(["tensorboard"], sweep.folder)
    monkeypatch.setattr(tracker, "write", lambda run: run.no_such_attribute)
    thread = TrackerThread(sweep.ledger_path, tracker, sweep.sweep_id)
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        thread.start()
        assert not thread.close()
    assert "TensorBoard tracking stopped (AttributeError" in caplog.messages[-1]


def test_folders_of_cells_differ_and_stay_in_the_output_folder() -> None:
    names = ["a", "a b", "a/b", "a%2Fb", "..", ".", ".a", "%2E", "α=1", "x" * 300, "x" * 301, "a\n"]
    folders = [escape_name(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert Path(folder).name == folder and not folder.startswith(".") and len(folder) < 140


@pytest.mark.parametrize(
    ("options", "variables", "fault"),
    [
        (["tensorbord"], {}, "there is no 'tensorbord'. Give one of tensorboard, wandb"),
        (["wandb:a", "wandb:b"], {}, "wandb is given twice"),
        (["tensorboard:x"], {}, "'tensorboard:x' is no tracker. Write tensorboard"),
        (["wandb:a?b"], {}, "wandb:a?b cannot be used: Invalid project name 'a?b'"),
        (
            ["wandb"],
            {"WANDB_MODE": "of"},
            "wandb cannot be used: 1 validation error for Settings mode Input should be 'online'",
        ),
        (["wandb"], {"WANDB_MODE": "disabled"}, "is disabled, or knows no account"),
        (
            ["wandb"],
            {"WANDB_MODE": "online"},
            "knows no account on this machine. Run `wandb login`",
        ),
    ],
)
def test_faults_are_said_before_a_run(
    options: list[str],
    variables: dict[str, str],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=re.escape(fault)):
        build_trackers(options, tmp_path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.plugins.wandb_runs.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'wandb>=0\.31'"):
        build_trackers(["wandb"], tmp_path)
