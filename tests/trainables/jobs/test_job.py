"""`run_job`: events, files, repetition, failure; and the export it leaves."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import trainables
from tests.trainables import core_trials
from tests.trainables.core_trials import comparable, job
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.splits import load_splits
from trainables.jobs import job as jobs
from trainables.jobs.job import run_job
from trainables.jobs.locked_job import LockedJob
from trainables.jobs.request import Job
from trainables.losses.proxy_anchor import ProxyAnchor
from trainables.words.errors import ConfigError, TrialFailure


def run(given: Job) -> list[dict[str, Any]]:
    events = list(run_job(given))
    assert json.loads(json.dumps(events, allow_nan=False)) == events
    return events


def test_a_job_and_the_same_job_again(
    drawn: Path, shared_cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trainables")
    job_request = job(core_trials.config(drawn), shared_cache, tmp_path, evaluate=("val",))
    events = run(job_request)
    assert [e["event"] for e in events] == ["epoch"] * 4 + ["final"]
    assert set(events[0]) == {"event", "epoch", "steps", "seconds", "metrics"}
    final = events[-1]
    assert set(final["evaluations"]) == {"val"}
    assert set(final["classes"]) == {"val"}
    for name, pairs in final["classes"]["val"]["metrics"].items():
        mean = sum(value * count for value, count in pairs) / sum(count for _, count in pairs)
        assert mean == pytest.approx(final["evaluations"]["val"][name], abs=1e-6)
    assert final["export"] == "best.safetensors"
    assert final["history"] == events[:-1]
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved == {"config": job_request.config, "seed": 3}
    assert "epoch 4/4" in caplog.text and "selected epoch" in caplog.text
    again = run(job_request)
    assert again == [final]

    text = (tmp_path / "final.json").read_text()
    steps = f'"steps": {final["steps"]}'
    for damaged in ("{", text.replace(steps, f"{steps}0")):
        caplog.clear()
        (tmp_path / "final.json").write_text(damaged)
        assert comparable(run(job_request)[-1]) == comparable(final)
        assert "final.json is damaged" in caplog.text

    final["export"] = "../other.safetensors"
    (tmp_path / "other.safetensors").touch()
    identity = {"config_hash": final["provenance"]["config_hash"], "seed": job_request.seed}
    (tmp_path / "final.json").write_text(json.dumps(final | identity))
    with pytest.raises(ConfigError, match=r"'../other.safetensors' is not a plain name"):
        run(job_request)


@pytest.mark.slow
def test_a_finished_job_evaluates_what_was_not_asked_before(
    drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = core_trials.config(drawn, backbone={"mode": "finetune"}, training={"epochs": 2})
    both = run(job(trial, shared_cache, tmp_path / "both"))[-1]
    run(job(trial, shared_cache, tmp_path / "one", evaluate=("val",)))
    monkeypatch.setattr(Trainer, "step", None)  # nothing may train from here on
    for mode in ("train", "evaluate"):
        (final,) = run(job(trial, shared_cache, tmp_path / "one", evaluate=("test",), mode=mode))
        assert comparable(final) == comparable(both)
    monkeypatch.setattr(jobs, "EVALUATOR", "another-evaluator")
    job_request = job(trial, shared_cache, tmp_path / "one", evaluate=("test",), mode="evaluate")
    (final,) = run(job_request)
    assert final["evaluator"] == "another-evaluator"
    assert set(final["evaluations"]) == set(final["classes"]) == {"test"}


def test_another_trials_folder_is_refused(drawn: Path, shared_cache: Path, tmp_path: Path) -> None:
    trial = core_trials.config(drawn, training={"epochs": 1})
    with pytest.raises(TrialFailure, match="no model to evaluate"):
        run(job(trial, shared_cache, tmp_path, mode="evaluate"))
    run(job(trial, shared_cache, tmp_path))
    for other in (
        job(trial, shared_cache, tmp_path, seed=4),
        job(core_trials.config(drawn, training={"epochs": 2}), shared_cache, tmp_path),
    ):
        with pytest.raises(ConfigError, match=r"final\.json: This result belongs to"):
            run(other)


def test_failure_leaves_its_traceback_in_the_log(
    drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        raise IndexError("a bug in a loss")

    monkeypatch.setattr(ProxyAnchor, "forward", broken)
    attempt = LockedJob(
        job(core_trials.config(drawn), shared_cache, tmp_path),
        "trainables.jobs.job:run_job",
        clean=False,
    )
    assert attempt.receive_events(60.0)[-1]["reason"] == "IndexError: a bug in a loss"
    attempt.close()
    log = (tmp_path / "trial.log").read_text()
    assert "Traceback" in log
    assert "IndexError: a bug in a loss" in log
    assert not logging.getLogger("trainables").handlers


@pytest.mark.parametrize("mode", ["frozen", "finetune"])
def test_the_export_embeds_as_the_trial_did(
    mode: str, drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = core_trials.config(drawn, backbone={"mode": mode}, training={"epochs": 2})
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    list(trainer.train_epochs())
    trainer.finish(())
    test = load_splits(trial.data, shared_cache).test
    with torch.no_grad():
        expected = torch.cat(
            [trainer.network.embed(b) for b in trainer.inputs.iterate_blocks(test)]
        )

    model = trainables.load(tmp_path / "best.safetensors", device="cpu")
    assert model.config == trial
    assert len(model.classes) == trainer.network.method.classes
    arrays = np.stack([test.images[int(row)].numpy() for row in test.index])
    pictures = [Image.fromarray(array) for array in arrays]
    for images in (arrays, torch.from_numpy(arrays), pictures):
        actual = model.embed(images, batch_size=7)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert model.score(expected[:3], expected).argmax(1).tolist() == [0, 1, 2]
    grey = model.embed(arrays[..., 0])
    assert grey.shape == expected.shape
    assert grey.isfinite().all()


def test_a_job_that_pauses_goes_on_as_if_it_had_not(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = core_trials.config(drawn)
    uninterrupted = run(job(trial, shared_cache, tmp_path / "whole", evaluate=("val",)))
    job_request = job(trial, shared_cache, tmp_path / "legs", evaluate=("val",))
    first = run(replace(job_request, until=1))
    assert [event["event"] for event in first] == ["epoch", "paused"]
    assert first[-1] == {"event": "paused", "epoch": 1, "history": first[:-1]}
    assert run(replace(job_request, until=1)) == first[-1:], "it is there already"
    second = run(replace(job_request, until=3))
    assert [event["event"] for event in second] == ["epoch", "epoch", "paused"]
    last = run(replace(job_request, until=4))
    assert [event["event"] for event in last] == ["epoch", "final"]
    assert comparable(last[-1]) == comparable(uninterrupted[-1])


def test_exhausted_memory_names_the_setting_that_needs_less(
    drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0")

    monkeypatch.setattr(Trainer, "step", exhaust)
    message = r"^CUDA out of memory.* with 12 images at once\. Set training\.micro_batch to 6,"
    with pytest.raises(torch.OutOfMemoryError, match=message):
        run(job(core_trials.config(drawn), shared_cache, tmp_path))
