"""A job on the node that it has come to: its folder, its data, and what the storage has of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.fs
import pytest

from tests.trainables import core_trials
from trainables.data.dataset import fingerprint
from trainables.jobs.node_folder import (
    check_data,
    copy_checkpoint,
    fetch_files,
    find_newest,
    iterate_checkpoint_files,
    localize_job,
    read_folder_state,
)
from trainables.jobs.request import CheckpointStorage, Fold, Job, Leader, Payload

FILES = pyarrow.fs.LocalFileSystem()
TRIALS = ("a" * 16 + "-s0", "b" * 16 + "-s0")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache-of-the-node"))
    config = core_trials.config(core_trials.draw(tmp_path / "images"))
    built = core_trials.job(config, tmp_path, tmp_path / "out" / "trials" / TRIALS[0])
    return replace(built, trial_id=TRIALS[0])


def payload(job: Job, there: Path, **places: tuple[str, ...]) -> Payload:
    checkpoints = {TRIALS["ab".index(name)]: folder_name for name, folder_name in places.items()}
    storage = CheckpointStorage(str(there), True, checkpoints)
    return Payload(job, "a:b", True, Leader("host", 1, 0.0), storage=storage)


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_the_newest_state_its_best_and_the_results_are_stored(tmp_path: Path) -> None:
    states = ["steps-1-best-1.pt", "steps-3-best-2.pt", "steps-2-best-2.pt", ".steps-4.pt.7.tmp"]
    names = [f"checkpoints/{name}" for name in (*states, "best-1.pt", "best-2.pt")]
    folder = write(tmp_path / "t", *names, "trial.log", ".lock", "final.json")
    (tmp_path / "t" / ".stored-draft").mkdir()
    expected = ["checkpoints/best-2.pt", "checkpoints/steps-3-best-2.pt", "final.json", "trial.log"]
    assert [name for name, _ in iterate_checkpoint_files(folder)] == expected
    before = read_folder_state(folder)
    write(folder, "trial.log", "checkpoints/steps-1-best-1.pt")
    assert read_folder_state(folder) == before, "a log is no newer state"
    write(folder, "checkpoints/steps-4-best-2.pt")
    assert read_folder_state(folder) != before
    copy_checkpoint(folder, tmp_path / "draft")
    assert (tmp_path / "draft/checkpoints/steps-4-best-2.pt").exists()


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", "checkpoints/steps-1-best-1.pt", "checkpoints/best-1.pt")
    for name in ("x.1/checkpoint_000000", "x.1/checkpoint_000001", "x.2/checkpoint_000000"):
        copy_checkpoint(folder, tmp_path / "draft")
        shutil.copytree(tmp_path / "draft", tmp_path / "there" / name)
    there, folders = str(tmp_path / "there"), ("x.2", "x.1", "x.gone")
    assert find_newest(FILES, there, folders) == "x.2/checkpoint_000000"
    (tmp_path / "there/x.2/checkpoint_000000/checkpoints/best-1.pt").write_text("cut")
    assert find_newest(FILES, there, folders) == "x.1/checkpoint_000001"
    (tmp_path / "there/x.1/checkpoint_000001/files.json").unlink()
    assert find_newest(FILES, there, folders) == "x.1/checkpoint_000000"
    assert find_newest(FILES, there, ()) is None


def test_a_node_without_the_driver_s_folder_is_named(tmp_path: Path, job: Job) -> None:
    job_request = replace(payload(job, tmp_path), storage=None)
    with pytest.raises(
        OSError, match=rf"node .*{tmp_path}/out/trials, .* does not exist.*--storage"
    ):
        localize_job(job_request)
    (tmp_path / "out" / "trials").mkdir(parents=True)
    assert localize_job(job_request) is job


def test_trials_that_a_job_works_on_come_into_folders_of_the_node(tmp_path: Path, job: Job) -> None:
    exports = [tmp_path / "out" / "trials" / trial / "best.safetensors" for trial in TRIALS]
    members = tuple(Fold(job.config, 0, export) for export in exports)
    job_request = payload(replace(job, members=members), tmp_path / "there", a=("x.1",), b=("y.1",))
    localized = localize_job(job_request)
    cache = tmp_path / "cache-of-the-node"
    folder = localized.runtime.trial_dir
    assert folder is not None and folder.is_relative_to(cache)
    assert all(item.export.is_relative_to(cache) for item in localized.members)
    assert (
        localized.runtime.cache_dir == cache.resolve()
        and job_request.job.runtime.trial_dir != folder
    )
    for name in ("x.1", "y.1"):
        copy_checkpoint(
            write(tmp_path / name, "best.safetensors", f"{name}.txt"),
            tmp_path / "there" / name / "checkpoint_000000",
        )
    assert job_request.storage is not None
    fetch_files(job_request.storage, localized)
    assert (folder / "x.1.txt").exists()
    for member, name in zip(localized.members, ("x.1", "y.1"), strict=True):
        assert member.export.exists() and (member.export.parent / f"{name}.txt").exists()


def test_a_state_in_the_driver_s_folder_is_not_written_over(tmp_path: Path, job: Job) -> None:
    folder = write(tmp_path / "x.1", "checkpoints/steps-2-best-0.pt")
    copy_checkpoint(folder, tmp_path / "there" / "x.1" / "checkpoint_000000")
    storage = CheckpointStorage(str(tmp_path / "there"), False, {TRIALS[0]: ("x.1",)})
    assert job.runtime.trial_dir is not None
    write(job.runtime.trial_dir, "checkpoints/steps-3-best-0.pt")
    fetch_files(storage, job)
    state = job.runtime.trial_dir / "checkpoints"
    assert [path.name for path in state.iterdir()] == ["steps-3-best-0.pt"]
    shutil.rmtree(state)
    fetch_files(storage, job)
    assert [path.name for path in state.iterdir()] == ["steps-2-best-0.pt"]


def test_a_node_with_other_data_or_none_is_named_before_training(tmp_path: Path, job: Job) -> None:
    config = core_trials.config(tmp_path / "images")
    check_data(job, fingerprint(config.data, job.runtime.cache_dir))
    root = tmp_path / "images"
    with pytest.raises(
        OSError, match=rf"node .*the data set folder in {root} differs from the driver"
    ):
        check_data(job, "0" * 64)
    shutil.rmtree(root)
    with pytest.raises(OSError, match=rf"node .*{root}"):
        check_data(job, "1" * 64)
