"""A job on a node that does not see the driver's folder, without Ray: another home, a storage."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ablate.cli.push import pushed
from ablate.engine.ray.apart import KIND
from ablate.engine.ray.tune import cause
from ablate.storage.store import Storage, StorageError
from tests.trainables import core_trials
from trainables.data.dataset import fingerprint
from trainables.data.files.places import FETCHED
from trainables.errors import ConfigError
from trainables.jobs.attempt import Attempt
from trainables.jobs.nodes import carried, envelope, mirror
from trainables.jobs.nodes.carried import Carried, on_this_node
from trainables.jobs.nodes.data_sets import FOLDER, OtherData
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.nodes.store import Listed
from trainables.jobs.request import Fold

RUNNER = "trainables.jobs.job:run_job"
Posted = Callable[..., Envelope]


@pytest.fixture
def posted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Posted:
    """What a driver hands out, of whose folders the node has none."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "node" / "cache"))
    monkeypatch.delenv(FETCHED, raising=False)
    root = core_trials.draw(tmp_path / "driver" / "images")
    config = core_trials.config(root, training={"epochs": 2})
    digest = fingerprint(config.data, tmp_path / "driver" / "cache")

    def post(**more: Any) -> Envelope:
        job = core_trials.job(config, tmp_path / "driver" / "cache", tmp_path / "driver" / "t")
        runtime = replace(job.runtime, run="run", trial_dir=tmp_path / "driver" / "trials" / "t")
        there = envelope.Storage(KIND, str(tmp_path / "there"), "there", False, digest)
        job = replace(job, runtime=runtime)
        return Envelope(job, RUNNER, True, Leader("host", 1, 0.0), replace(there, **more))

    return post


def run(given: Envelope, *, apart: bool = True) -> dict[str, Any]:
    """The last event of a job as its worker does it."""
    job = Carried(Envelope.parse(given.text()), apart=apart)
    attempt = Attempt(job.job, given.runner, clean=given.clean)
    try:
        job.begin()
        while (last := attempt.events(60.0)[-1])["event"] == "epoch":
            pass
        job.end()
    finally:
        attempt.close()
    job.leave()
    return last


def gone(tmp_path: Path) -> Path:
    """Takes the driver's images away from this node; where they are now."""
    return (tmp_path / "driver" / "images").rename(tmp_path / "driver" / "elsewhere")


def test_a_trial_leaves_all_in_storage_and_nothing_in_the_driver_s_folder(
    tmp_path: Path, posted: Posted
) -> None:
    given = posted()
    alone = core_trials.comparable(run(given, apart=False))
    (tmp_path / "driver" / "trials").rename(tmp_path / "driver" / "before")
    assert core_trials.comparable(run(given)) == alone
    names = sorted(Storage(str(tmp_path / "there")).listed("trials/t"))
    assert names == ["best.safetensors", "config.json", "final.json", "trial.log"]
    assert not (tmp_path / "driver" / "trials").exists()
    weights = tmp_path / "there" / "trials" / "t" / "best.safetensors"
    before = tmp_path / "driver" / "before" / "t" / "best.safetensors"
    assert weights.read_bytes() == before.read_bytes()


def test_another_node_goes_on_where_one_was_lost(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = posted()
    alone = core_trials.comparable(run(given, apart=False))
    lost = Carried(given, apart=True)
    attempt = Attempt(lost.job, given.runner, clean=given.clean)
    lost.begin()
    for _ in range(2):  # the first epoch is saved when the second one is asked for
        attempt.events(0.0)
    end = time.monotonic() + 60
    there = tmp_path / "there" / "trials" / "t" / "checkpoints"
    while not list(there.glob("steps-*.pt")):  # the other file of an epoch may be there before
        assert time.monotonic() < end, "no checkpoint went to storage while the trial ran"
        time.sleep(0.05)
    attempt.close()  # and nothing goes to storage at its end
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "another node" / "cache"))
    last = run(given)
    assert last["provenance"]["resumed_from_epoch"] == 1
    assert core_trials.comparable(last) == alone


def test_another_run_on_the_node_reads_more_of_it_with_weights_from_storage(
    tmp_path: Path, posted: Posted
) -> None:
    given = posted()
    first = run(given)
    runtime = replace(given.job.runtime, run="another")
    job = replace(given.job, runtime=runtime, mode="evaluate", evaluate=("train",))
    more = run(replace(given, job=job))
    assert set(more["evaluations"]) == {*first["evaluations"], "train"}
    final = json.loads((tmp_path / "there" / "trials" / "t" / "final.json").read_text())
    assert "train" in final["evaluations"]


def test_weights_that_the_driver_is_just_putting_there_are_waited_for(
    tmp_path: Path, posted: Posted
) -> None:
    given = posted()
    run(given)
    there = tmp_path / "there" / "trials" / "t"
    there.rename(tmp_path / "kept")
    late = threading.Timer(1.5, lambda: (tmp_path / "kept").rename(there))
    late.start()
    runtime = replace(given.job.runtime, run="another")
    job = replace(given.job, runtime=runtime, mode="evaluate", evaluate=("train",))
    assert "train" in run(replace(given, job=job))["evaluations"]
    late.join()


def test_weights_that_are_not_there_in_time_are_no_fault_of_the_trial(
    posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "OFFER_SECONDS", 0.1)
    given = posted()
    with pytest.raises(OSError, match=r"node .*: found no trials/t/final.json in storage; "):
        run(replace(given, job=replace(given.job, mode="evaluate")))


def test_a_data_set_comes_from_storage_once(
    tmp_path: Path, posted: Posted, capsys: pytest.CaptureFixture[str]
) -> None:
    given = posted()
    data = core_trials.config(tmp_path / "driver" / "images").data
    assert pushed(data, str(tmp_path / "there")) == 0 == pushed(data, str(tmp_path / "there"))
    assert "84 files" in (said := capsys.readouterr().out) and "already" in said
    gone(tmp_path)
    assert run(given)["event"] == "final"
    (folder,) = (tmp_path / "node" / "cache" / FOLDER).glob("folder-*[!k]")
    assert len(list(folder.rglob("*.png"))) == core_trials.CLASSES * core_trials.EACH
    written = folder.stat().st_mtime_ns
    run(replace(given, job=replace(given.job, trial_id="u")))
    assert folder.stat().st_mtime_ns == written


def test_a_data_set_that_nobody_has_pushed_is_named_with_the_node(
    tmp_path: Path, posted: Posted
) -> None:
    given = posted()
    gone(tmp_path)
    told = r"node .*: found .* as data set folder; expected the driver's.*ablate data push"
    with pytest.raises(OtherData, match=told) as caught:
        run(given)
    line = f"{OtherData.__module__}.OtherData: {caught.value}"  # as Ray tells it
    assert cause(OSError(line)) == line, "its remedy is cut off"


def test_another_data_set_under_the_same_name_is_refused(tmp_path: Path, posted: Posted) -> None:
    given = posted(fingerprint="0" * 64)
    with pytest.raises(OtherData, match="found another one, of fingerprint "):
        run(given)
    assert not list((tmp_path / "there").rglob("final.json"))


def test_a_storage_with_a_password_is_given_to_no_node(posted: Posted) -> None:
    with pytest.raises(OSError, match=r"found no .*driver.*which no node is given"):
        run(posted(where=None))


def test_a_variable_that_this_node_lacks_is_named_with_the_node(posted: Posted) -> None:
    with pytest.raises(OSError, match=r"node .*env:NOT_HERE, and no such variable"):
        run(posted(where="env:NOT_HERE"))


def test_where_all_see_the_folder_nothing_goes_to_storage(tmp_path: Path, posted: Posted) -> None:
    run(posted(), apart=False)
    assert (tmp_path / "driver" / "trials" / "t" / "final.json").exists()
    assert not (tmp_path / "there").exists()
    run(posted(copies=True), apart=False)
    assert (tmp_path / "there" / "trials" / "t" / "final.json").exists()


def test_folders_of_old_runs_go(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "node" / "cache" / carried.FOLDER / "old"
    (old / "t").mkdir(parents=True)
    run(posted())
    assert old.exists()
    monkeypatch.setattr(carried, "LEFT_SECONDS", -1.0)
    with FileLock(old / "t" / ".lock"):
        run(posted())
    assert (old / "t").exists(), "a trial was under way in it"
    run(posted())
    assert not old.exists()


def test_a_table_of_images_comes_from_storage(tmp_path: Path, posted: Posted) -> None:
    given = posted()
    root = tmp_path / "driver" / "images"
    table = root / "table.csv"
    rows = [f"{p.relative_to(root)},{p.parent.name}" for p in sorted(root.rglob("*.png"))]
    table.write_text("\n".join(["path,label", *rows]))
    config = core_trials.config(root, data={"name": "manifest", "root": str(table)})
    digest = fingerprint(config.data, tmp_path / "driver" / "cache")
    pushed(config.data, str(tmp_path / "there"))
    gone(tmp_path)
    assert given.storage is not None
    job = replace(given.job, config=config.model_dump(mode="json"))
    storage = replace(given.storage, fingerprint=digest)
    assert run(replace(given, job=job, storage=storage))["event"] == "final"


def test_what_comes_with_a_package_is_not_pushed(tmp_path: Path) -> None:
    from trainables.data.dataset import data_config

    with pytest.raises(ConfigError, match="typefaces, which comes with its package"):
        pushed(data_config({"name": "typefaces"}), str(tmp_path))


class Away(Storage):
    """A storage that does not answer the first `times` calls of a process."""

    times = 0

    def listed(self, folder: str) -> dict[str, Listed]:
        if Away.times > 0:
            Away.times -= 1
            raise StorageError("there: cannot list (away)")
        return super().listed(folder)


AWAY = f"{Away.__module__}:{Away.__qualname__}"


def test_a_storage_that_is_another_one_here_is_refused(tmp_path: Path, posted: Posted) -> None:
    given = posted(proof="proofs/of-this-run")
    with pytest.raises(OSError, match=r"node .*: found no proofs/of-this-run in storage there; "):
        run(given)
    assert not list(tmp_path.rglob("final.json")), "it was trained all the same"
    (tmp_path / "there" / "proofs").mkdir(parents=True)
    (tmp_path / "there" / "proofs" / "of-this-run").touch()
    assert run(given)["event"] == "final"


def test_a_storage_that_is_away_at_the_beginning_is_waited_for(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "LAST_SECONDS", 2.0)
    monkeypatch.setattr(Away, "times", 3)
    job = Carried(posted(kind=AWAY), apart=True)
    job.begin()
    assert Away.times == 0
    job.end()
    monkeypatch.setattr(carried, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(Away, "times", 1000)
    with pytest.raises(OSError, match="away"):
        job.begin()


def test_a_node_that_sees_the_folder_does_without_a_storage_that_is_away(
    tmp_path: Path,
    posted: Posted,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(carried, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(carried, "_away", set())
    monkeypatch.setattr(Away, "times", 10_000)
    assert run(posted(copies=True, kind=AWAY), apart=False)["event"] == "final"
    run(posted(copies=True, where="env:NOT_HERE"), apart=False)
    run(posted(copies=True, proof="proofs/of-this-run"), apart=False)
    said = [line for line in caplog.messages if "go on in the driver's folder alone" in line]
    assert len(said) == 1
    assert not (tmp_path / "there" / "trials").exists()
    shutil.rmtree(tmp_path / "driver" / "trials")
    given = posted(copies=True, kind=AWAY)
    with pytest.raises(OSError, match="away"):  # the weights may be there
        run(replace(given, job=replace(given.job, mode="evaluate")), apart=False)


def test_only_a_node_apart_loses_what_the_storage_does_not_take(
    posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StorageError("there: cannot write (away)")

    monkeypatch.setattr(carried, "_away", set())
    monkeypatch.setattr(mirror, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(Storage, "put", away)
    assert run(posted(copies=True), apart=False)["event"] == "final"
    with pytest.raises(OSError, match="away"):
        run(posted())


def test_a_node_apart_keeps_nothing_of_a_trial_that_is_in_storage(
    tmp_path: Path, posted: Posted
) -> None:
    run(posted())
    (folder,) = (tmp_path / "node" / "cache" / carried.FOLDER / "run").iterdir()
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_weights_that_others_read_outlive_the_folder_of_their_trial(posted: Posted) -> None:
    given = posted()
    export = Path("/driver/trials/u/best.safetensors")
    job = on_this_node(replace(given.job, members=(Fold({}, 0, export),)))
    assert job.runtime.trial_dir is not None
    (member,) = job.members
    assert member.export.parent.parent != job.runtime.trial_dir.parent
    assert member.export.parts[-2:] == ("u", "best.safetensors")
