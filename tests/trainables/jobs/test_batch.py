"""A batch of real trials by its command: the numbers of jobs run one by one, killed or not."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainables import core_trials
from tests.trainables.core_trials import timeless
from tests.trainables.jobs import batches as made
from trainables.core import components
from trainables.core.runtime import Runtime
from trainables.jobs import batch as command
from trainables.jobs import trial_file as files
from trainables.jobs.job import run_job

KILLS = 3


def told(folder: Path) -> dict[str, Any]:
    """Trial → all that its result says but times and what tells of resumption."""
    results = {}
    for trial in sorted(folder.glob("trials/*")):
        result = files.read_result(trial)
        last = result.last
        keys = ("event", "best_epoch", "epochs", "steps", "evaluations", "classes", "evaluator")
        weights = last["export"], files.digest(trial / last["export"])
        curve = [timeless(epoch["metrics"]) for epoch in result.epochs]
        results[trial.name] = {key: last[key] for key in keys} | {"w": weights, "curve": curve}
    return results


@pytest.fixture(scope="module")
def whole(drawn: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trials in two processes; beside it `cells.jsonl`."""
    folder = tmp_path_factory.mktemp("whole")
    cells = made.written(folder / "cells.jsonl", made.entries(drawn, shared_cache))
    code, text = made.finished(cells, folder / "out", shared_cache, "--processes", "2")
    assert code == 0 and "3 done, 0 failed, 0 left" in text, text
    return folder / "out"


@pytest.mark.slow
def test_it_trains_what_jobs_train(
    whole: Path, drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    for entry in made.entries(drawn, shared_cache):
        runtime = Runtime("cpu", 1, shared_cache, tmp_path / "trials" / entry.trial_id, 0.0)
        events = list(run_job(replace(entry.job, runtime=runtime)))
        files.write_result(Path(str(runtime.trial_dir)), entry, events)
    assert told(whole) == told(tmp_path) and len(told(whole)) == 3


@pytest.mark.slow
def test_started_again_it_trains_nothing(whole: Path, shared_cache: Path) -> None:
    before, begun = told(whole), list(made.begun(whole))
    cells = whole.parent / "cells.jsonl"
    code, text = made.finished(cells, whole, shared_cache)
    assert code == 0 and "3 of these trials have ended already" in text
    assert list(made.begun(whole)) == begun
    first = next(whole.glob("trials/*/result.jsonl"))
    first.write_bytes(first.read_bytes()[:-20])
    code, text = made.finished(cells, whole, shared_cache)
    assert code == 2 and "remove this file and start the batch again" in text
    first.unlink()
    code, text = made.finished(cells, whole, shared_cache)
    assert code == 0 and "2 of these trials have ended already" in text
    assert told(whole) == before
    assert "epoch 1/4" not in first.with_name("trial.log").read_text().split("begins (train)")[-1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_random_instants_changes_nothing(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    given = made.entries(drawn, shared_cache, **made.HEAVY)
    cells = made.written(tmp_path / "cells.jsonl", given)
    code, text = made.finished(cells, tmp_path / "whole", shared_cache, "--processes", "2")
    assert code == 0, text
    draw, killed = random.Random(20261122), tmp_path / "killed"
    for kill in range(KILLS):
        batch = made.start(cells, killed, shared_cache, "--processes", "2")
        lines = len(epochs_told(killed))
        end = time.monotonic() + 100
        while len(epochs_told(killed)) < lines + 3 and batch.poll() is None:
            assert time.monotonic() < end, "no trial made progress"
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.2))
        children = psutil.Process(batch.pid).children() if batch.poll() is None else []
        if kill == KILLS - 1 and children:  # one of its processes alone, this time
            children[-1].kill()
            batch.communicate(timeout=200)
            break
        batch.send_signal(signal.SIGKILL)
        batch.communicate(timeout=60)
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive, "its processes outlive it"
    code, text = made.finished(cells, killed, shared_cache, "--processes", "2")
    assert code == 0, text
    assert told(killed) == told(tmp_path / "whole")
    logs = [log.read_text() for log in killed.glob("trials/*/trial.log")]
    assert any(" resumes after epoch" in text for text in logs), "every trial began anew"


def epochs_told(folder: Path) -> list[str]:
    return [
        line
        for log in folder.glob("trials/*/trial.log")
        for line in log.read_text().splitlines()
        if "· step" in line
    ]


@pytest.mark.slow
def test_signals_end_it_cleanly(drawn: Path, shared_cache: Path, tmp_path: Path) -> None:
    given = made.entries(drawn, shared_cache, 1, training={"epochs": 4000})
    cells = made.written(tmp_path / "cells.jsonl", given)
    for number in (signal.SIGTERM, signal.SIGINT):
        batch = made.start(cells, tmp_path / "out", shared_cache)
        before, end = len(epochs_told(tmp_path / "out")), time.monotonic() + 100
        try:
            while len(epochs_told(tmp_path / "out")) <= before:
                assert batch.poll() is None and time.monotonic() < end
                time.sleep(0.05)
            children = psutil.Process(batch.pid).children()
            batch.send_signal(number)
            text, _ = batch.communicate(timeout=60)
        finally:
            if batch.poll() is None:
                batch.terminate()  # its worker goes with it
        assert batch.returncode == 128 + number, text
        assert text.endswith("again to continue.\n") and "Traceback" not in text
        assert not psutil.wait_procs(children, timeout=20)[1]


# ------------------------------------------------------------------------------------- wrong input


@pytest.fixture
def refused(
    drawn: Path,
    shared_cache: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """What it says of entries that cannot be run; nothing was."""
    monkeypatch.setenv("ABLATE_CACHE", str(shared_cache))

    def told_of(*more: str, entries: list[Any] | None = None) -> str:
        given = made.entries(drawn, shared_cache, 1) if entries is None else entries
        cells = made.written(tmp_path / "cells.jsonl", given)
        assert command.main([str(cells), "--out", str(tmp_path / "out"), *more]) == 2
        assert not (tmp_path / "out" / "trials").exists()
        text = capsys.readouterr().err
        assert text.count("\n") == 1
        return text

    return told_of


def test_other_code_is_refused(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = components.compute_component_digest

    def edited(name: str) -> tuple[str | None, str]:
        return ("0" * 16, "") if name == "loss.proxy_anchor" else real(name)

    monkeypatch.setattr(components, "compute_component_digest", edited)
    # The cells were written before the edit.
    monkeypatch.setattr(made, "code", lambda config: SAVED)
    assert "source of loss.proxy_anchor differs from the source on the machine" in refused()


SAVED = made.code(core_trials.config(Path("unread")).model_dump(mode="json"))


def test_other_images_are_refused(
    refused: Any, drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    other = core_trials.draw(tmp_path / "drawn")
    next(other.glob("*/*.png")).unlink()
    assert "The images here have the fingerprint" in refused("--data-root", str(other))
    assert "data.root: " in refused("--data-root", str(tmp_path / "nothing"))


def test_another_configuration_than_its_identity_is_refused(
    refused: Any, drawn: Path, shared_cache: Path
) -> None:
    (entry,) = made.entries(drawn, shared_cache, 1)
    config = core_trials.merged(dict(entry.job.config), {"optimizer": {"lr": 0.5}})
    text = refused(entries=[replace(entry, job=replace(entry.job, config=config))])
    assert "The configuration is that of trial" in text
    config = core_trials.merged(dict(entry.job.config), {"loss": {"name": "mine"}})
    text = refused(entries=[replace(entry, job=replace(entry.job, config=config))])
    assert "loss" in text


@pytest.mark.parametrize(
    "more",
    [
        ["--processes", "0"],
        ["--device", "tpu"],
    ],
)
def test_wrong_options(refused: Any, more: list[str]) -> None:
    assert more[0].removeprefix("--") in refused(*more)


def test_check_runs_nothing(
    drawn: Path,
    shared_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    cells = made.written(tmp_path / "cells.jsonl", made.entries(drawn, shared_cache))
    assert command.main([str(cells), "--out", str(tmp_path / "out"), "--check"]) == 0
    assert "No trial was run" in capsys.readouterr().out
    assert list((tmp_path / "cache").iterdir()), "the data were not decoded"
    assert not (tmp_path / "out" / "trials").exists()


@pytest.mark.slow
def test_shards_share_a_batch_out(drawn: Path, shared_cache: Path, tmp_path: Path) -> None:
    given = made.entries(drawn, shared_cache, 3, training={"epochs": 1})
    cells = made.written(tmp_path / "cells.jsonl", given)
    for task in (1, 2):
        done = subprocess.run(
            made.command(cells, tmp_path / "out", "--shard", f"{task}/2"),
            cwd=made.ROOT,
            env={**made.os.environ, "ABLATE_CACHE": str(shared_cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{3 - task} trials in part {task} of 2" in done.stdout
    assert len(told(tmp_path / "out")) == 3
