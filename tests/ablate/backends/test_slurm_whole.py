"""A sweep of real trials by `ablate submit`, whose process is killed again and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ablate import api
from ablate.backends.submission import list_submissions
from tests.ablate.backends.batch.sweeps import facts, real_spec
from tests.ablate.backends.slurm import Cluster
from tests.ablate.command import build_python_path
from tests.trainables import core_trials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("preloaded_trials"),
]


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, its images, and the results of `ablate run` in `run`."""
    top = tmp_path_factory.mktemp("whole")
    spec = real_spec(core_trials.draw(top / "images"))
    (top / "spec.yaml").write_text(json.dumps(spec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATE_CACHE", str(top / "cache"))
        assert api.run(spec, out=top / "run", device="cpu", report=False).outcome.code == 0
    return top


def start(top: Path, out: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ablate", "submit", str(top / "spec.yaml"), *words]
    more = {"PYTHONPATH": build_python_path(), "ABLATE_CACHE": str(top / "cache"), **environment}
    return subprocess.Popen(
        [*command, "--device", "cpu", "--out", str(out)],
        cwd=top,
        env={**os.environ, **more},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killed_around_sbatch_and_while_tasks_run(top: Path, tmp_path: Path) -> None:
    """`before` the job exists; with sbatch at work (`late`); without, and with, its answer."""
    cluster, out = Cluster(tmp_path / "slurm", tmp_path / "out"), tmp_path / "out"
    (cluster.folder / "run").touch()
    (cluster.folder / "kill").write_text("before\nlate\nunanswered\nanswered\n")
    words = ("--slurm", "gpu", "--gpus", "2", "--sbatch=--time=1:00:00")
    killed = 0
    while (process := start(top, out, cluster.environment, *words)).wait() == -9:
        killed += 1
    text = process.communicate()[0]
    assert killed == 4 and process.returncode == 0, text
    assert "report.html" in text
    jobs = [set(trials) for trials in cluster.jobs().values()]
    # tune, tune, dims and a further evaluation, whole; the first call made no job
    assert [len(trials) for trials in jobs] == [2, 2, 4, 1]
    assert len(cluster.calls) == 5 and len({*jobs[0], *jobs[1]}) == 4
    assert facts(top / "run") == facts(out)
    options = "--partition=gpu --requeue --cpus-per-task=1 --time=1:00:00"
    assert options in cluster.calls[0], "and no GPU is asked for"


def test_local_processes_outlive_a_killed_follower(top: Path, tmp_path: Path) -> None:
    out, seen = tmp_path / "out", set[str]()
    for _ in range(2):
        process = start(top, out, {}, "--local", "2")
        known = seen | {""}
        wait_for(lambda known=known: {s.job_id for s in list_submissions(out)} - known)
        process.kill()
        process.communicate()
        seen |= {s.job_id for s in list_submissions(out)}
        process = start(top, out, {}, "--local", "2", "--detach")
        assert "goes on without this command" in process.communicate()[0]
    process = start(top, out, {}, "--local", "2")
    text = process.communicate()[0]
    assert process.returncode == 0 and "report.html" in text, text
    trials = [trial for s in list_submissions(out) for trial in s.progress]
    assert facts(top / "run") == facts(out)
    assert sorted(map(trials.count, set(trials))) == [1] * 7 + [2], "one is evaluated further"
