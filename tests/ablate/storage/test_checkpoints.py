"""Trials' checkpoints in storage, as the driver records, brings, offers and removes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.storage import checkpoints as module
from ablate.storage.checkpoints import TrialCheckpoints, fetch_weights
from ablate.storage.ledger_backup import NOTE, BackupState
from ablate.storage.store import Storage, StorageError
from trainables.errors import ConfigError
from trainables.jobs.node_folder import copy_checkpoint

TRIAL = "0123456789abcdef-s0"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "there"))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "out" / "ledger.sqlite") as made:
        made.claim(TRIAL, "0" * 64, 0, {}, Owner.from_this_process())
        yield made


@pytest.fixture
def made(tmp_path: Path, storage: Storage, ledger: Ledger) -> TrialCheckpoints:
    return TrialCheckpoints(storage, ledger, tmp_path / "out/trials", remote=True, tell=print)


def trained(folder: Path, word: str = "weights", *, ended: bool = True) -> Path:
    """A trial's folder: under way, or ended."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / "steps-1-best-0.pt").write_text(word)
    if ended:
        for name in ("best.safetensors", "final.json", "trial.log"):
            (folder / name).write_text(word)
    return folder


def store(made: TrialCheckpoints, folder: Path, when: int, number: int) -> str:
    """What Tune does on a node."""
    place = f"trials/{TRIAL}.{when}/checkpoint_{number:06d}"
    copy_checkpoint(folder, folder.parent / "draft")
    made.storage.put_folder(place, folder.parent / "draft")
    made.record_checkpoint(TRIAL, place)
    return place


def test_the_last_checkpoint_stays_and_its_results_come(
    tmp_path: Path, made: TrialCheckpoints, ledger: Ledger
) -> None:
    folder = trained(tmp_path / "node" / TRIAL, ended=False)
    with made:
        store(made, folder, 1, 0)
        for number in range(4):
            store(made, folder, 2, number)
        assert made.find_places(TRIAL) == (f"trials/{TRIAL}.2", f"trials/{TRIAL}.1")
        last = store(made, trained(folder), 2, 4)
        made.finish_trial(TRIAL)
    assert made.storage.list_folder("trials") == [f"{TRIAL}.2"]
    assert made.storage.list_folder(f"trials/{TRIAL}.2") == ["checkpoint_000004"]
    here = tmp_path / "out" / "trials" / TRIAL
    assert sorted(path.name for path in here.iterdir()) == [
        "best.safetensors",
        "final.json",
        "trial.log",
    ]
    row = ledger.get_trial(TRIAL)
    assert row is not None and row["checkpoint"] == last


def test_what_is_here_alone_is_offered_once(
    tmp_path: Path, made: TrialCheckpoints, storage: Storage
) -> None:
    made.upload_trial(TRIAL)
    assert storage.list_folder("trials") == []
    trained(tmp_path / "out" / "trials" / TRIAL)
    made.upload_trial(TRIAL)
    made.upload_trial(TRIAL)
    assert len(storage.list_folder("trials")) == 1
    made.remove_trial(TRIAL)
    assert storage.list_folder("trials") == [] and made.find_places(TRIAL) == ()


def test_weights_are_fetched_where_the_ledger_s_note_says_so(
    tmp_path: Path, made: TrialCheckpoints, storage: Storage
) -> None:
    trials = tmp_path / "out" / "trials"
    store(made, trained(tmp_path / "node" / TRIAL), 1, 0)
    fetch_weights(trials, TRIAL)  # nobody says where they are
    assert not (trials / TRIAL).exists()
    BackupState("ledger", {storage.shown: 1}).write(trials.parent / NOTE)
    fetch_weights(trials, TRIAL)
    assert (trials / TRIAL / "best.safetensors").read_text() == "weights"


@pytest.mark.parametrize("times", [2, 1_000_000])
def test_a_storage_that_is_away_loses_nothing_and_is_told_of_if_it_stays_away(
    tmp_path: Path, made: TrialCheckpoints, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    told: list[str] = []
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(made, "tell", told.append)
    if times > 2:
        monkeypatch.setattr(module, "END_SECONDS", 0.1)
    download, tries = Storage.download, itertools.count()

    def failing(self: Storage, name: str, path: Path) -> bool:
        if next(tries) < times:
            raise StorageError("it is away")
        return download(self, name, path)

    monkeypatch.setattr(Storage, "download", failing)
    with made:
        store(made, trained(tmp_path / "node" / TRIAL), 1, 0)
        made.finish_trial(TRIAL)
    assert (tmp_path / "out/trials" / TRIAL / "final.json").exists() == (times == 2)
    assert len(told) == (times > 2) and all("it is away" in text for text in told)


@pytest.mark.parametrize("place", ["trials/other.1/checkpoint_0", "../x.1/checkpoint_0", "/x"])
def test_a_place_that_no_checkpoint_has_is_refused(
    made: TrialCheckpoints, ledger: Ledger, place: str
) -> None:
    ledger.put_checkpoint(TRIAL, place)
    with pytest.raises(ConfigError):
        made.find_places(TRIAL)


def test_no_password_goes_to_nodes(tmp_path: Path, ledger: Ledger) -> None:
    storage = Storage("s3://me:and-my-word@bucket/a?region=eu-west-1")
    with pytest.raises(ConfigError) as caught:
        TrialCheckpoints(storage, ledger, tmp_path, remote=True, tell=print)
    assert "and-my-word" not in str(caught.value)
