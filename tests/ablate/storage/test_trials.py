"""Trials' files in storage, as the driver brings, offers and forgets them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from ablate.storage.copies import NOTE
from ablate.storage.store import Storage, StorageError
from ablate.storage.trials import (
    SMALL,
    WHOLE,
    bring,
    fetch,
    forget,
    lacks,
    offer,
    stored,
    weights_here,
)
from ablate.storage.word import Note
from trainables.errors import ConfigError

TRIAL = "0123456789abcdef-s0"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "there"))


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    """With a trial that has ended here."""
    folder = tmp_path / "out" / "trials"
    (folder / TRIAL).mkdir(parents=True)
    for name in WHOLE:
        (folder / TRIAL / name).write_text(name)
    return folder


def test_a_trial_that_is_offered_is_there_once(storage: Storage, trials: Path) -> None:
    assert not stored(storage)
    offer(storage, trials, TRIAL)
    assert stored(storage) and sorted(storage.listed(f"trials/{TRIAL}")) == sorted(WHOLE)
    (trials / TRIAL / "best.safetensors").write_text("other")
    offer(storage, trials, TRIAL)
    assert storage.read(f"trials/{TRIAL}/best.safetensors") == b"best.safetensors"


def trained(folder: Path, seconds: float, **more: object) -> None:
    """As if it had been trained in so many seconds."""
    (folder / "best.safetensors").write_text(f"weights of {seconds} s")
    (folder / "final.json").write_text(json.dumps({"seconds": seconds, **more}))


def test_a_trial_that_was_trained_anew_takes_the_place_of_the_old_one(
    storage: Storage, trials: Path
) -> None:
    trained(trials / TRIAL, 1.0)
    offer(storage, trials, TRIAL)
    storage.put(f"trials/{TRIAL}/checkpoints/old", trials / TRIAL / "config.json")
    trained(trials / TRIAL, 2.0)
    assert lacks(storage, trials, TRIAL)
    assert storage.listed(f"trials/{TRIAL}") == {}, "somebody reads it meanwhile"
    offer(storage, trials, TRIAL)
    assert storage.read(f"trials/{TRIAL}/best.safetensors") == b"weights of 2.0 s"
    assert sorted(storage.listed(f"trials/{TRIAL}")) == sorted(WHOLE)


def test_a_trial_that_was_read_again_stays_as_it_is_there(storage: Storage, trials: Path) -> None:
    trained(trials / TRIAL, 1.0)
    offer(storage, trials, TRIAL)
    trained(trials / TRIAL, 1.0, evaluations={"test": {}})
    assert not lacks(storage, trials, TRIAL)


def test_what_a_later_training_elsewhere_has_left_there_stays(
    storage: Storage, trials: Path, tmp_path: Path
) -> None:
    trained(trials / TRIAL, 1.0)
    other = tmp_path / "node" / TRIAL
    other.mkdir(parents=True)
    trained(other, 2.0)
    offer(storage, other.parent, TRIAL)
    os.utime(trials / TRIAL / "final.json", times=(time.time() - 60,) * 2)
    assert not lacks(storage, trials, TRIAL)
    bring(storage, trials, TRIAL, SMALL)
    assert not (trials / TRIAL / "best.safetensors").exists(), "the result of others' weights"
    fetch(storage, trials, TRIAL)
    bring(storage, trials, TRIAL, SMALL)
    assert (trials / TRIAL / "best.safetensors").read_text() == "weights of 2.0 s"


def test_weights_stay_here_whose_result_never_came_to_storage(
    storage: Storage, trials: Path
) -> None:
    storage.put(f"trials/{TRIAL}/config.json", trials / TRIAL / "config.json")
    bring(storage, trials, TRIAL, SMALL)
    assert (trials / TRIAL / "best.safetensors").exists()


def test_an_offer_that_was_broken_off_is_made_again(storage: Storage, trials: Path) -> None:
    offer(storage, trials, TRIAL)
    storage.delete(f"trials/{TRIAL}/final.json")
    offer(storage, trials, TRIAL)
    assert sorted(storage.listed(f"trials/{TRIAL}")) == sorted(WHOLE)


def test_a_trial_without_weights_is_not_offered(storage: Storage, trials: Path) -> None:
    (trials / TRIAL / "best.safetensors").unlink()
    offer(storage, trials, TRIAL)
    assert not stored(storage)


def test_logs_and_results_come_and_weights_when_they_are_asked_for(
    storage: Storage, trials: Path, tmp_path: Path
) -> None:
    offer(storage, trials, TRIAL)
    other = tmp_path / "other" / "trials"
    bring(storage, other, TRIAL, SMALL)
    assert (other / TRIAL / "final.json").exists()
    assert not (other / TRIAL / "best.safetensors").exists()
    weights_here(other, TRIAL)  # nobody says where they are
    assert not (other / TRIAL / "best.safetensors").exists()
    Note("ledger", {storage.shown: 1}).write(other.parent / NOTE)
    weights_here(other, TRIAL)
    assert (other / TRIAL / "best.safetensors").read_text() == "best.safetensors"


def test_weights_without_their_result_are_fetched_again(
    storage: Storage, trials: Path, tmp_path: Path
) -> None:
    offer(storage, trials, TRIAL)
    folder = tmp_path / "other" / "trials" / TRIAL
    bring(storage, folder.parent, TRIAL, WHOLE[:-1])  # killed before the last
    fetch(storage, folder.parent, TRIAL)
    assert (folder / "final.json").exists()
    (folder / "best.safetensors").write_text("as it is here")
    fetch(storage, folder.parent, TRIAL)
    assert (folder / "best.safetensors").read_text() == "as it is here"


def test_forgetting_says_that_the_storage_is_away(
    storage: Storage, trials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(storage, trials, TRIAL)

    def away(self: Storage, name: str) -> None:
        raise StorageError("away")

    monkeypatch.setattr(Storage, "delete", away)
    with pytest.raises(StorageError):  # which is waited for; a ConfigError ends the sweep
        forget(storage, TRIAL)


def test_a_trial_is_forgotten(storage: Storage, trials: Path) -> None:
    offer(storage, trials, TRIAL)
    forget(storage, TRIAL)
    assert storage.listed(f"trials/{TRIAL}") == {}


def test_names_that_lead_elsewhere_are_refused(storage: Storage, trials: Path) -> None:
    with pytest.raises(ConfigError):
        bring(storage, trials, "..", ["x"])
    with pytest.raises(ConfigError):
        bring(storage, trials, TRIAL, ["../x"])
