"""`ablate prune` on a sweep whose trials have left files."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from ablate.cli.main import main
from ablate.cli.prune import format_bytes
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.sweep.dispatch import Dispatch
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, finish, table

Captured = pytest.CaptureFixture[str]
WEIGHTS, STATE = 1000, 4000  # bytes


@pytest.fixture
def made(tmp_path: Path) -> Dispatch:
    """All is done; each trial has weights and a checkpoint."""
    done = dispatch(specs.plan(), tmp_path)
    drain(done)
    for folder in (tmp_path / "trials").iterdir():
        fill(folder)
    return done


def fill(folder: Path) -> None:
    (folder / "best.safetensors").write_bytes(b"w" * WEIGHTS)
    (folder / "checkpoints").mkdir(exist_ok=True)
    for state in (folder / "checkpoints").iterdir():
        state.unlink()
    (folder / "checkpoints" / "steps.pt").write_bytes(b"s" * STATE)


def prune(out: Path, *words: str) -> int:
    return main(["prune", *words, "--out", str(out)])


def left(out: Path, name: str) -> set[str]:
    return {path.parent.name for path in (out / "trials").glob(f"*/{name}")}


def best(made: Dispatch) -> set[str]:
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


def test_nothing_goes_without_yes(tmp_path: Path, made: Dispatch, capsys: Captured) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert prune(tmp_path) == 0
    said = capsys.readouterr().out
    trials = {row["trial_id"] for row in table(made)}
    assert (
        f"checkpoints of {len(trials)} trials: would free {format_bytes(len(trials) * STATE)}"
        in said
    )
    weights = len(trials) - len(best(made))
    assert f"weights of {weights} trials: would free {format_bytes(weights * WEIGHTS)}" in said
    assert said.endswith(f"  ablate prune --out {tmp_path} --yes\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_best_stay(tmp_path: Path, made: Dispatch, capsys: Captured) -> None:
    trials, known = {row["trial_id"] for row in table(made)}, table(made)
    logs = left(tmp_path, "trial.log")
    page = tmp_path / "reports" / "small" / "report.html"
    page.parent.mkdir(parents=True)
    gone = min(trials - best(made))
    page.write_text(f'<a href="../../trials/{gone}/best.safetensors">weights</a>')
    assert prune(tmp_path, "--yes") == 0
    said = capsys.readouterr().out
    freed = len(trials) * STATE + (len(trials) - len(best(made))) * WEIGHTS
    assert (
        f"freed {format_bytes(freed)}" in said and f"{page} links to weights that are gone" in said
    )
    assert left(tmp_path, "best.safetensors") == best(made)
    assert left(tmp_path, "checkpoints") == set() and left(tmp_path, "trial.log") == logs == trials
    assert table(made) == known
    assert all(row["owner"] is None for row in made.ledger.rows("SELECT owner FROM trials"))
    assert prune(tmp_path, "--yes", "--keep", "weights") == 0
    assert "nothing to remove" in capsys.readouterr().out
    assert drain(dispatch(specs.plan(), tmp_path)) == [], "what is known needs no weights"


@pytest.mark.parametrize("keep", ["weights", "none"])
def test_more_or_less_is_kept(tmp_path: Path, made: Dispatch, keep: str) -> None:
    trials = {row["trial_id"] for row in table(made)}
    assert prune(tmp_path, "--keep", keep, "--yes") == 0
    assert left(tmp_path, "best.safetensors") == (trials if keep == "weights" else set())
    assert left(tmp_path, "checkpoints") == set()


def test_what_runs_or_goes_on_is_not_touched(tmp_path: Path, capsys: Captured) -> None:
    made = dispatch(specs.plan(), tmp_path)
    done, running, stopped = (made.next_job() for _ in range(3))
    assert done is not None and running is not None and stopped is not None
    finish(made, done.trial_id)
    for job in (done, running, stopped):
        folder = tmp_path / "trials" / job.trial_id
        folder.mkdir(exist_ok=True, parents=True)
        fill(folder)
    made.ledger.release(stopped.trial_id, "interrupted")
    assert prune(tmp_path, "--keep", "none", "--yes") == 0
    note = f"sweep small ({made.sweep_id}) is not finished: its weights stay"
    assert note in capsys.readouterr().out
    assert len(left(tmp_path, "best.safetensors")) == 3, "its sweep is not finished"
    assert left(tmp_path, "checkpoints") == {running.trial_id, stopped.trial_id}
    # A driver takes up what is done, to read it once more, between the look and the removal.
    fill(tmp_path / "trials" / done.trial_id)
    with FileLock(tmp_path / "trials" / done.trial_id / ".lock"):
        assert prune(tmp_path, "--yes") == 1
    assert "somebody is at work in its folder" in capsys.readouterr().err
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        other = Owner("elsewhere", 1, 1.0)
        assert ledger.claim_evaluation(done.trial_id, other) == "mine"
    assert prune(tmp_path, "--yes") == 0
    assert len(left(tmp_path, "checkpoints")) == 3


def test_bad_input_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    assert prune(tmp_path) == 2 and "no ledger" in capsys.readouterr().err
    drain(dispatch(specs.plan(), tmp_path))
    assert prune(tmp_path, "another") == 2
    said = capsys.readouterr().err
    assert said.startswith("SWEEP: found 'another'") and said.count("\n") == 1
