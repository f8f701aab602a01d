"""`ablate prune` on a sweep whose trials have left files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger, Owner
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, finish, table

Captured = pytest.CaptureFixture[str]
WEIGHTS, STATE = 100_000, 400_000  # bytes


@pytest.fixture
def made(tmp_path: Path) -> JobQueue:
    """All is done; each trial has weights and a checkpoint."""
    done = dispatch(specs.plan(), tmp_path)
    drain(done)
    for folder in (tmp_path / "trials").iterdir():
        fill(folder)
    return done


def fill(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "best.safetensors").write_bytes(b"w" * WEIGHTS)
    (folder / "checkpoints" / "steps.pt").write_bytes(b"s" * STATE)


def prune(out: Path, *words: str) -> int:
    return main(["prune", *words, "--out", str(out)])


def left(out: Path, name: str) -> set[str]:
    return {path.parent.name for path in (out / "trials").glob(f"*/{name}")}


def best(made: JobQueue) -> set[str]:
    """Of each study, by its mean over seeds."""
    rows: dict[str, dict[str, list[tuple[float, str]]]] = {}
    for row in table(made):
        of_study = rows.setdefault(row["study"], {})
        of_study.setdefault(row["cell"], []).append((row["val/map_at_r"], row["trial_id"]))
    means = [
        max(cells.values(), key=lambda cell: sum(value for value, _ in cell) / len(cell))
        for cells in rows.values()
    ]
    return {trial for cell in means for _, trial in cell}


def test_the_best_stay_and_nothing_goes_without_yes(
    tmp_path: Path, made: JobQueue, capsys: Captured
) -> None:
    known = table(made)
    trials = {row["trial_id"] for row in known}
    others = trials - best(made)
    before = sorted(tmp_path.rglob("*"))
    assert prune(tmp_path) == 0
    said = capsys.readouterr().out
    states, weights = len(trials) * STATE, len(others) * WEIGHTS
    assert f"checkpoints of {len(trials)} trials would free {states / 1e6:,.1f} MB" in said
    assert f"weights of {len(others)} trials would free {weights / 1e6:,.1f} MB" in said
    checkpoints = {str(path) for path in tmp_path.glob("trials/*/checkpoints")}
    assert checkpoints and checkpoints <= {line.strip() for line in said.splitlines()}
    assert sorted(tmp_path.rglob("*")) == before
    assert prune(tmp_path, "--yes") == 0
    said = capsys.readouterr().out
    assert f"freed {(states + weights) / 1e6:,.1f} MB" in said and "`ablate report`" in said
    assert left(tmp_path, "best.safetensors") == best(made)
    assert left(tmp_path, "checkpoints") == set() and left(tmp_path, "trial.log") == trials
    assert table(made) == known
    assert all(row["owner"] is None for row in made.ledger.query("SELECT owner FROM trials"))
    assert prune(tmp_path, "--yes") == 0
    assert "nothing to remove" in capsys.readouterr().out
    assert drain(dispatch(specs.plan(), tmp_path)) == [], "what is known needs no weights"


def test_a_link_in_place_of_the_trials_is_refused(
    tmp_path: Path, made: JobQueue, capsys: Captured
) -> None:
    (tmp_path / "trials").rename(tmp_path / "elsewhere")
    (tmp_path / "trials").symlink_to(tmp_path / "elsewhere")
    assert prune(tmp_path, "--yes") == 2
    assert "trials: this is a symbolic link" in capsys.readouterr().err
    assert left(tmp_path, "checkpoints") == {row["trial_id"] for row in table(made)}


def test_what_runs_or_goes_on_is_not_touched(tmp_path: Path, capsys: Captured) -> None:
    made = dispatch(specs.plan(), tmp_path)
    done, running, stopped = (made.claim_next_job() for _ in range(3))
    assert done is not None and running is not None and stopped is not None
    finish(made, done.trial_id)
    for job in (done, running, stopped):
        fill(tmp_path / "trials" / job.trial_id)
    made.ledger.release(stopped.trial_id, "interrupted")
    assert prune(tmp_path, "--yes") == 0
    note = f"sweep small ({made.sweep_id}) is not finished: its weights stay"
    assert note in capsys.readouterr().out
    assert len(left(tmp_path, "best.safetensors")) == 3, "its sweep is not finished"
    assert left(tmp_path, "checkpoints") == {running.trial_id, stopped.trial_id}
    # A driver takes up what is done, to read it once more, between the look and the removal.
    fill(tmp_path / "trials" / done.trial_id)
    with FileLock(tmp_path / "trials" / done.trial_id / ".lock"):
        assert prune(tmp_path, "--yes") == 1
    assert "its folder is in use" in capsys.readouterr().err
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        other = Owner("elsewhere", 1, 1.0)
        assert ledger.claim_evaluation(done.trial_id, other) == "mine"
    assert prune(tmp_path, "--yes") == 0
    assert len(left(tmp_path, "checkpoints")) == 3
    capsys.readouterr()
    assert prune(tmp_path, "another") == 2
    said = capsys.readouterr().err
    assert said.startswith("SWEEP: 'another' is no sweep") and said.count("\n") == 1
