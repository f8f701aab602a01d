"""What one member's fault is to the others, and what is told when."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.core_trials import job
from tests.trainables.packs.pack_cases import SGD, by_job, configs, made, packed
from trainables.core.runtime import EpochReport
from trainables.core.trainer import Trainer
from trainables.evaluation.metrics import EVALUATOR
from trainables.jobs.job import FINAL, run_job
from trainables.jobs.nodes.carried import Carried
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.nodes.packed import PackedAttempt
from trainables.jobs.request import Job


@pytest.fixture
def jobs(drawn: Path, shared_cache: Path, tmp_path: Path) -> list[Job]:
    return made(drawn, shared_cache, tmp_path)


def test_a_program_that_ends_under_several_is_nobodys_failure(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    """One member's matrix without singular values ends the step of all."""
    trials = configs(drawn, {"name": "detreg", "spectrum": "singular"}, "proxy_anchor", **SGD)
    rate = trials[1].optimizer.model_copy(update={"lr": 10.0})
    trials[1] = trials[1].model_copy(update={"optimizer": rate})
    found = [job(packed(each), shared_cache, tmp_path / f"t{n}") for n, each in enumerate(trials)]
    each = [replace(given, trial_id=f"t{n}", seed=n) for n, given in enumerate(found)]
    with pytest.raises(OSError, match="each goes on alone"):
        by_job(each)
    last = [by_job([given])[0][-1]["event"] for given in each]
    assert last == ["final", "failed", "final"]


def test_a_metric_that_fails_is_its_members_failure(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.end_epoch

    def broken(self: Trainer, look: Any = None) -> EpochReport:
        if self.seed == 1:
            raise ValueError("this one's")
        return whole(self, look)

    monkeypatch.setattr(Trainer, "end_epoch", broken)
    found = by_job(jobs)
    assert [found[n][-1]["event"] for n in range(3)] == ["final", "failed", "final"]
    assert "ValueError: this one's" in found[1][-1]["reason"]


def test_what_a_finished_one_lacks_is_evaluated(jobs: list[Job]) -> None:
    by_job([replace(each, evaluate=("val",)) for each in jobs])
    more = [replace(each, evaluate=("val", "test")) for each in jobs]
    found = by_job(more)
    assert [len(events) for events in found.values()] == [1, 1, 1]
    assert all({*events[-1]["evaluations"]} == {"val", "test"} for events in found.values())
    (alone,) = run_job(more[0])
    assert alone["evaluations"] == found[0][-1]["evaluations"]
    assert more[1].runtime.trial_dir is not None
    path = more[1].runtime.trial_dir / FINAL
    kept = json.loads(path.read_text())
    del kept["sha256"]
    path.write_text(json.dumps(kept | {"evaluator": "another-0", "evaluations": {"val": {}}}))
    (again,) = by_job([more[1]])[0]
    assert again["evaluator"] == EVALUATOR
    assert again["evaluations"] == found[1][-1]["evaluations"]


def test_who_has_ended_is_told_of_before_the_others_train_on(jobs: list[Job]) -> None:
    given = [replace(jobs[0], until=1), *jobs[1:]]
    leader = Leader("here", 1, 0.0)
    runner = "trainables.packs.jobs:run_pack"
    envelope = Envelope(given[0], runner, True, leader, None, 1.0, beside=tuple(given[1:]))
    attempt = PackedAttempt(
        [Carried(each, apart=False) for each in envelope.each()], runner, clean=True
    )
    attempt.begin()
    first = dict(attempt.events(600.0))
    names = {trial: [event["event"] for event in events] for trial, events in first.items()}
    assert names == {"t0": ["epoch", "paused"], "t1": ["epoch"], "t2": ["epoch"]}
    rest = dict(attempt.events(600.0))
    assert {trial: events[-1]["event"] for trial, events in rest.items()}.keys() <= {"t1", "t2"}
    attempt.close()
