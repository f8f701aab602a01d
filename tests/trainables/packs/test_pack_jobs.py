"""Jobs of a pack: events, folders, results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.trainables.core_trials import comparable
from tests.trainables.packs.pack_cases import by_job, made
from trainables.core.export import load, read_weights
from trainables.core.trainer import Trainer
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
from trainables.packs.pack import Pack


@pytest.fixture
def jobs(drawn: Path, shared_cache: Path, tmp_path: Path) -> list[Job]:
    return made(drawn, shared_cache, tmp_path)


def test_each_has_its_events_folder_and_result(jobs: list[Job]) -> None:
    found = by_job(jobs)
    for number, given in enumerate(jobs):
        names = [event["event"] for event in found[number]]
        assert names == ["epoch", "epoch", "final"]
        folder = given.runtime.trial_dir
        assert folder is not None
        log = (folder / "trial.log").read_text()
        assert "epoch 2/2" in log and f"trial t{number}, in a pack" in log
        assert not any(f"trial t{other}," in log for other in range(3) if other != number)
        assert (folder / "final.json").exists()
        load(folder / "best.safetensors", "cpu")
    again = by_job(jobs)
    assert {number: len(events) for number, events in again.items()} == {0: 1, 1: 1, 2: 1}
    assert all(comparable(again[n][0]) == comparable(found[n][-1]) for n in again)


def test_a_job_alone_is_the_same_to_the_bit(
    jobs: list[Job], drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    found = by_job(jobs)
    alone = made(drawn, shared_cache, tmp_path / "alone")[1]
    final = list(run_job(alone))[-1]
    assert comparable(final) == comparable(found[1][-1])
    folders = [each.runtime.trial_dir for each in (alone, jobs[1])]
    one, other = (read_weights(each / "best.safetensors") for each in folders if each is not None)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_paused_and_gone_on_with_in_other_packs(
    jobs: list[Job], drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    found = by_job(jobs)
    paused = made(drawn, shared_cache, tmp_path / "paused")
    first = by_job([replace(paused[0], until=1), paused[1], replace(paused[2], until=1)])
    assert [first[n][-1]["event"] for n in range(3)] == ["paused", "final", "paused"]
    later = by_job([paused[2], paused[0]])
    assert [event["epoch"] for event in later[0] if event["event"] == "epoch"] == [2]
    for number, final in ((0, later[1][-1]), (1, first[1][-1]), (2, later[0][-1])):
        assert comparable(final) == comparable(found[number][-1])


def test_one_that_fails_says_why_and_the_others_go_on(jobs: list[Job]) -> None:
    bad = replace(jobs[0], config={**jobs[0].config, "training": 3}, trial_id="bad")
    found = by_job([bad, *jobs])
    assert found[0][-1]["event"] == "failed" and "training" in found[0][-1]["reason"]
    assert [found[n][-1]["event"] for n in (1, 2, 3)] == ["final"] * 3


def test_the_machines_fault_is_raised(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Trainer) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trainer, "save", full)
    with pytest.raises(OSError, match="No space left"):
        by_job(jobs)


def test_memory_exhausted_names_the_remedy(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(self: Pack, turn: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(Pack, "_step", exhausted)
    found = by_job(jobs)
    for events in found.values():
        assert events[-1]["event"] == "failed"
        assert "in a pack of 4: lower training.packed" in events[-1]["reason"]
