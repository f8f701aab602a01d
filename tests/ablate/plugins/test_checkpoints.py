"""Trials' checkpoints in storage, as the driver records, brings, offers and removes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger, Owner
from ablate.plugins import checkpoints as module
from ablate.plugins.checkpoints import TrialCheckpoints
from ablate.plugins.storage import NOTE, BackupState, Storage, StorageError
from ablate.storage import fetch_weights
from trainables.jobs.node_folder import copy_checkpoint
from trainables.words.errors import ConfigError

TRIAL = "0123456789abcdef-s0"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "there"))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "out" / "ledger.sqlite") as opened:
        opened.claim(TRIAL, "0" * 64, 0, {}, Owner.from_this_process())
        yield opened


@pytest.fixture
def checkpoints(tmp_path: Path, storage: Storage, ledger: Ledger) -> TrialCheckpoints:
    return TrialCheckpoints(storage, ledger, tmp_path / "out/trials", remote=True, print_line=print)


def trained(folder: Path, content: str = "weights", *, ended: bool = True) -> Path:
    """A trial's folder: under way, or ended."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / "steps-1-best-0.pt").write_text(content)
    if ended:
        for name in ("best.safetensors", "final.json", "trial.log"):
            (folder / name).write_text(content)
    return folder


def store(checkpoints: TrialCheckpoints, folder: Path, when: int, number: int) -> str:
    """What Tune does on a node."""
    location = f"trials/{TRIAL}.{when}/checkpoint_{number:06d}"
    copy_checkpoint(folder, folder.parent / "draft")
    checkpoints.storage.put_folder(location, folder.parent / "draft")
    checkpoints.record_checkpoint(TRIAL, location)
    return location


def test_the_last_checkpoint_stays_and_its_results_come(
    tmp_path: Path, checkpoints: TrialCheckpoints, ledger: Ledger
) -> None:
    folder = trained(tmp_path / "node" / TRIAL, ended=False)
    with checkpoints:
        store(checkpoints, folder, 1, 0)
        for number in range(4):
            store(checkpoints, folder, 2, number)
        assert checkpoints.list_attempts(TRIAL) == (f"trials/{TRIAL}.2", f"trials/{TRIAL}.1")
        last = store(checkpoints, trained(folder), 2, 4)
        checkpoints.finish_trial(TRIAL)
    assert checkpoints.storage.list_folder("trials") == [f"{TRIAL}.2"]
    assert checkpoints.storage.list_folder(f"trials/{TRIAL}.2") == ["checkpoint_000004"]
    names = sorted(path.name for path in (tmp_path / "out" / "trials" / TRIAL).iterdir())
    assert names == ["best.safetensors", "final.json", "trial.log"]
    row = ledger.get_trial(TRIAL)
    assert row is not None and row["checkpoint"] == last


def test_what_is_here_alone_is_offered_once(
    tmp_path: Path, checkpoints: TrialCheckpoints, storage: Storage
) -> None:
    checkpoints.upload_trial(TRIAL)
    assert storage.list_folder("trials") == []
    trained(tmp_path / "out" / "trials" / TRIAL)
    checkpoints.upload_trial(TRIAL)
    checkpoints.upload_trial(TRIAL)
    assert len(storage.list_folder("trials")) == 1
    checkpoints.remove_trial(TRIAL)
    assert storage.list_folder("trials") == [] and checkpoints.list_attempts(TRIAL) == ()


def test_weights_are_fetched_where_the_ledger_s_note_says_so(
    tmp_path: Path, checkpoints: TrialCheckpoints, storage: Storage
) -> None:
    trials = tmp_path / "out" / "trials"
    store(checkpoints, trained(tmp_path / "node" / TRIAL), 1, 0)
    fetch_weights(trials, TRIAL)  # nobody says where they are
    assert not (trials / TRIAL).exists()
    BackupState("ledger", {str(storage): 1}).write(trials.parent / NOTE)
    fetch_weights(trials, TRIAL)
    assert (trials / TRIAL / "best.safetensors").read_text() == "weights"


@pytest.mark.parametrize("times", [2, 1_000_000])
def test_a_storage_that_is_away_loses_nothing_and_is_told_of_if_it_stays_away(
    tmp_path: Path, checkpoints: TrialCheckpoints, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(checkpoints, "print_line", lines.append)
    if times > 2:
        monkeypatch.setattr(module, "END_SECONDS", 0.1)
    download, tries = Storage.download, itertools.count()

    def failing(self: Storage, name: str, path: Path) -> bool:
        if next(tries) < times:
            raise StorageError("it is away")
        return download(self, name, path)

    monkeypatch.setattr(Storage, "download", failing)
    with checkpoints:
        store(checkpoints, trained(tmp_path / "node" / TRIAL), 1, 0)
        checkpoints.finish_trial(TRIAL)
    assert (tmp_path / "out/trials" / TRIAL / "final.json").exists() == (times == 2)
    assert len(lines) == (times > 2) and all("it is away" in line for line in lines)


def test_a_place_that_no_checkpoint_has_is_refused(
    checkpoints: TrialCheckpoints, ledger: Ledger
) -> None:
    for checkpoint in ("trials/other.1/checkpoint_0", "../x.1/checkpoint_0", "/x"):
        ledger.put_checkpoint(TRIAL, checkpoint)
        with pytest.raises(ConfigError):
            checkpoints.list_attempts(TRIAL)


def test_no_password_goes_to_nodes(tmp_path: Path, ledger: Ledger) -> None:
    storage = Storage("s3://me:and-my-word@bucket/a?region=eu-west-1")
    with pytest.raises(ConfigError) as caught:
        TrialCheckpoints(storage, ledger, tmp_path, remote=True, print_line=print)
    assert "and-my-word" not in str(caught.value)
