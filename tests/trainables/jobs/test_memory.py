"""A GPU's memory that is exhausted, as far as no GPU is needed: a backbone that takes no more than
so many images at once with gradients, and raises what torch raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables import core_trials
from trainables.backbones.grad_cache import GradCacheRunner
from trainables.errors import TrialFailure
from trainables.jobs.job import run_job
from trainables.jobs.request import Job

TOLD = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"


class Memory:
    """fits: images."""

    def __init__(self) -> None:
        self.fits, self.asked = 10**9, list[int]()

    def check(self, images: torch.Tensor) -> None:
        if torch.is_grad_enabled():
            self.asked.append(len(images))
            if len(images) > self.fits:
                raise torch.OutOfMemoryError(TOLD)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made, init = Memory(), GradCacheRunner.__init__

    def limited(
        self: GradCacheRunner, features: Callable[..., Any], *rest: Any, **more: Any
    ) -> None:
        def checked(images: torch.Tensor) -> Any:
            made.check(images)
            return features(images)

        init(self, checked, *rest, **more)

    monkeypatch.setattr(GradCacheRunner, "__init__", limited)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    root = core_trials.draw(tmp_path / "images")

    def make(name: str, **changes: Any) -> Job:
        given = {"backbone": {"mode": "finetune"}, "training": {"epochs": 2}}
        config = core_trials.config(root, **core_trials.merged(given, changes))
        return core_trials.job(config, tmp_path / "cache", tmp_path / name)

    return make


def last(job: Job) -> dict[str, Any]:
    return list(run_job(job))[-1]


def test_it_goes_on_in_parts_that_fit(memory: Memory, job: Callable[..., Job]) -> None:
    expected = last(job("parts", training={"micro_batch": 3}))
    memory.fits, memory.asked = 5, []
    found = last(job("t"))
    assert max(memory.asked) == 12 and memory.asked[:3] == [12, 6, 3]
    assert core_trials.comparable(found) == core_trials.comparable(expected)
    told = found["provenance"]
    assert (told["micro_batch"], told["out_of_memory"]) == (3, 2)
    assert "out_of_memory" not in expected["provenance"]
    assert told["config_hash"] == expected["provenance"]["config_hash"]


def test_it_goes_on_from_its_checkpoint(
    memory: Memory, job: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else takes memory while it trains."""
    given, events = job("t", training={"epochs": 3}), []
    for event in run_job(given):
        events.append(event)
        if event.get("epoch") == 2:  # the first one is saved by now
            memory.fits = 6
    assert [event.get("epoch") for event in events[:-1]] == [1, 2, 3]
    assert [epoch["epoch"] for epoch in events[-1]["history"]] == [1, 2, 3]
    provenance = events[-1]["provenance"]
    assert provenance["resumed_from_epoch"] == 2 and provenance["micro_batch"] == 6
    assert "CUDA out of memory" in caplog.text
    assert "it goes on with 6 images at once" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fits", "changes", "told"),
    [
        (4, {"backbone": {"freeze_bn": False}}, "would not be the same trial"),
        (0, {"training": {"batch_size": 6}}, "a single image is too much"),
        (0, {"backbone": {"mode": "frozen"}}, "no backbone trains"),
    ],
)
def test_where_parts_are_another_trial_it_fails(
    memory: Memory, job: Callable[..., Job], fits: int, changes: dict[str, Any], told: str
) -> None:
    memory.fits = fits
    with pytest.raises(TrialFailure, match=told) as failed:
        last(job("t", **changes))
    assert str(failed.value).startswith("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_batch_without_a_driver_runs_fewer_side_by_side(
    memory: Memory, job: Callable[..., Job]
) -> None:
    memory.fits, given = 5, job("t")
    with pytest.raises(torch.OutOfMemoryError):
        last(replace(given, runtime=replace(given.runtime, divides=False)))
