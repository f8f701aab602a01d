"""What the driver does about nodes that do not see its folder, without Ray."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.engine.ray import apart as module
from ablate.engine.ray.apart import Apart
from ablate.storage import proof
from ablate.storage.store import Storage, StorageError
from ablate.storage.trials import WHOLE
from tests.trainables import core_trials
from trainables.data.dataset import data_config
from trainables.errors import ConfigError
from trainables.jobs.nodes.store import Listed
from trainables.jobs.request import Fold, Job

TRIALS = ("a" * 16 + "-s0", "b" * 16 + "-s0")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    config = core_trials.config(tmp_path / "images")
    return core_trials.job(config, tmp_path, tmp_path / "out" / "trials" / TRIALS[0])


def apart(tmp_path: Path, said: list[str], fingerprints: dict[str, str] | None = None) -> Apart:
    return Apart(
        Storage(str(tmp_path / "there")),
        tmp_path / "out" / "trials",
        tmp_path / "out" / "ray" / "x.here",
        None if fingerprints is None else lambda: fingerprints,
        said.append,
    )


def ended(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in WHOLE:
        (folder / name).write_text(name)


def test_the_marker_is_there_as_long_as_the_run(tmp_path: Path) -> None:
    made = apart(tmp_path, [])
    with made:
        assert made.marker.exists()
    assert not made.marker.exists()


def test_a_proof_is_in_storage_as_long_as_the_run(tmp_path: Path, job: Job) -> None:
    storage, left = Storage(str(tmp_path / "there")), tmp_path / "there" / "runs"
    left.mkdir(parents=True)
    for name, hours in (("killed", 25), ("alive", 1)):
        (left / name).write_text(name)
        os.utime(left / name, times=(time.time() - hours * 3600,) * 2)
    with apart(tmp_path, []) as made:
        given = made.storage_for(job).proof
        assert given is not None
        folder, _, name = given.partition("/")
        assert sorted(storage.listed(folder)) == sorted(["alive", name])
        assert storage.listed(folder)[name].size, "a folder to some storages"
    assert list(storage.listed(folder)) == ["alive"]


def test_a_long_run_keeps_its_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANEW_SECONDS", 0.05)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    with apart(tmp_path, []) as made:
        there = tmp_path / "there" / made.proof
        there.unlink()
        assert soon(there.exists)


def test_a_storage_that_takes_no_proof_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / proof.RUNS).write_text("no folder")
    with pytest.raises(ConfigError, match="--storage"), apart(tmp_path, []):
        pass


def test_a_result_that_is_not_in_storage_is_told_of_once(tmp_path: Path) -> None:
    said, storage = list[str](), Storage(str(tmp_path / "there"))
    here = tmp_path / "here"
    here.write_text("{}")
    storage.put(f"trials/{TRIALS[0]}/final.json", here)
    with apart(tmp_path, said) as made:
        made.hear(TRIALS[0], [], apart=True, last="final")
        made.hear(TRIALS[1], [], apart=True, last="failed")
    assert len(said) == 1, "all is where it belongs"
    with apart(tmp_path, said) as made:
        for number in range(3):
            made.hear(TRIALS[1][:-1] + str(number), [], apart=True, last="final")
    assert len(said) == 3 and f"no final.json of {TRIALS[1]}" in said[2]


def test_what_fails_is_tried_again_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    said = list[str]()
    faults: list[Exception] = [StorageError("away"), ValueError("a fault of ours")]
    put = Storage.put

    def failing(self: Storage, name: str, path: Path) -> None:
        if name.startswith(f"trials/{TRIALS[0]}") and faults:
            raise faults.pop()
        put(self, name, path)

    monkeypatch.setattr(Storage, "put", failing)
    for trial in TRIALS:
        ended(tmp_path / "out" / "trials" / trial)
    with apart(tmp_path, said) as made:
        made.hear("c" * 16 + "-s0", [], apart=True, last="epoch")
        for trial in TRIALS:
            made.hear(trial, [], apart=False, last="final")
        assert soon(lambda: not made._work)
    assert not faults and len(Storage(str(tmp_path / "there")).listed("trials")) == len(WHOLE) * 2
    assert len(said) == 1


def test_what_is_left_at_the_end_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    monkeypatch.setattr(module, "END_SECONDS", 0.1)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    for trial in TRIALS:
        ended(tmp_path / "out" / "trials" / trial)
    with apart(tmp_path, said) as made:
        (tmp_path / "there" / "trials").write_text("no folder")
        made.hear("c" * 16 + "-s0", [], apart=True, last="epoch")
        for trial in TRIALS:
            made.hear(trial, [], apart=False, last="final")
    assert len(said) == 2 and "files of 2 trials" in said[1] and "cannot write" in said[1]


def soon(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def test_the_fingerprint_goes_along(tmp_path: Path, job: Job) -> None:
    images = data_config(job.config["data"]).images
    assert apart(tmp_path, [], {images: "0123"}).storage_for(job).fingerprint == "0123"
    assert apart(tmp_path, []).storage_for(job).fingerprint is None


def test_nothing_goes_to_storage_until_a_node_says_that_it_is_apart(
    tmp_path: Path, job: Job
) -> None:
    for trial in TRIALS:
        ended(tmp_path / "out" / "trials" / trial)
    said, job = list[str](), ensemble(job, tmp_path)
    storage = Storage(str(tmp_path / "there"))
    with apart(tmp_path, said) as made:
        assert not made.storage_for(job).copies and storage.listed("trials") == {}
        made.hear(TRIALS[0], [job], apart=True, last="epoch")
        made.hear(TRIALS[1], [], apart=True, last="epoch")
        assert made.storage_for(job).copies
    assert len(storage.listed("trials")) == len(WHOLE) * 2
    assert len(said) == 1 and "nodes that do not see this folder" in said[0]
    assert apart(tmp_path, []).copies, "a later run does not know of them"


def ensemble(job: Job, tmp_path: Path) -> Job:
    trials = tmp_path / "out" / "trials"
    members = tuple(Fold(job.config, 0, trials / trial / "best.safetensors") for trial in TRIALS)
    return replace(job, trial_id=TRIALS[0], mode="ensemble", members=members)


def test_the_driver_waits_for_no_weights_and_those_that_a_node_waits_for_go_first(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, put, listed = threading.Event(), Storage.put, Storage.listed
    order, asked, others = list[str](), list[str](), [f"{number}-s0" for number in range(9)]

    def slow(self: Storage, name: str, path: Path) -> None:
        assert free.wait(20)
        order.append(name.split("/")[1])
        put(self, name, path)

    def counted(self: Storage, folder: str) -> dict[str, Listed]:
        asked.append(folder)
        return listed(self, folder)

    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    for trial in (*TRIALS, *others):
        ended(tmp_path / "out" / "trials" / trial)
    with apart(tmp_path, []) as made:
        made.hear("c" * 16 + "-s0", [], apart=True, last="epoch")
        monkeypatch.setattr(Storage, "put", slow)
        for other in others:
            made.hear(other, [], apart=False, last="final")
        assert made.storage_for(ensemble(job, tmp_path)).copies
        assert not order, "it has waited"
        free.set()
        assert soon(lambda: not made._first and not made._work)
        assert {*TRIALS} <= {*list(dict.fromkeys(order))[:3]}, "one may have been under way"
        monkeypatch.setattr(Storage, "listed", counted)
        assert made.storage_for(ensemble(job, tmp_path)).copies and not asked
    made.hear(TRIALS[1], [], apart=False, last="final")
    made.storage_for(ensemble(job, tmp_path))
    assert asked == [f"trials/{TRIALS[1]}"], "it may have been trained anew"


def test_logs_of_other_nodes_come_here(tmp_path: Path) -> None:
    storage, log = Storage(str(tmp_path / "there")), tmp_path / "log"
    log.write_text("what happened there")
    storage.put(f"trials/{TRIALS[0]}/trial.log", log)
    with apart(tmp_path, []) as made:
        made.hear(TRIALS[0], [], apart=True, last="final")
    here = tmp_path / "out" / "trials" / TRIALS[0] / "trial.log"
    assert here.read_text() == "what happened there"


def test_what_has_ended_here_before_goes_there_as_soon_as_a_node_is_apart(tmp_path: Path) -> None:
    for trial in TRIALS:
        ended(tmp_path / "out" / "trials" / trial)
    storage = Storage(str(tmp_path / "there"))
    with apart(tmp_path, []) as made:
        made.hear(TRIALS[0], [], apart=False, last="final")
        assert storage.listed("trials") == {}
        made.hear("c" * 16 + "-s0", [], apart=True, last="epoch")
        made.hear(TRIALS[1], [], apart=False, last="final")
    assert len(storage.listed("trials")) == len(WHOLE) * 2
