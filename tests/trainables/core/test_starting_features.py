"""Features that a pretrained backbone's trials start from: one finds them, the others read them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.core_trials import config, train
from trainables.backbones import frozen_norms
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data import features
from trainables.data.features import starting_features
from trainables.methods import principal
from trainables.trial import TrialConfig

CPU = torch.device("cpu")


def trial(drawn: Path, **changes: Any) -> TrialConfig:
    backbone = {"name": "tf_efficientnet_lite0", "weights": "packaged", "mode": "finetune"}
    given: dict[str, Any] = {
        "backbone": backbone,
        "embedding": {"dim": 8, "init": "pca"},
        "training": {"epochs": 1},
    }
    return config(drawn, **given | changes)


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "starts").glob("features-*/features.npy"))


def never() -> torch.Tensor:
    raise AssertionError("computed again")


@pytest.mark.parametrize("seed", [1])
def test_a_trial_that_finds_them_ends_in_the_same_bits(
    seed: int, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for case in ("none kept", "first", "second"):
        with monkeypatch.context() as patched:
            if case == "none kept":
                patched.setattr(
                    "trainables.core.assembly.starting_features",
                    lambda config, cache, device, rows, compute: compute(),
                )
            if case == "second":
                patched.setattr(
                    "trainables.core.assembly.starting_features",
                    lambda *given: starting_features(*given[:-1], never),
                )
            folder = tmp_path / case
            final = train(trial(drawn), seed, Runtime("cpu", 1, tmp_path / "cache", folder))
            ends.append((final.evaluations, (folder / str(final.export)).read_bytes()))
    assert ends[0] == ends[1] == ends[2]
    assert len(kept(tmp_path / "cache")) == 1


def test_more_than_the_cache_is_for_is_not_kept(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.core.assembly.KEPT_BYTES", 1000)
    Trainer(trial(drawn), 0, Runtime("cpu", 1, tmp_path)).begin()
    assert kept(tmp_path) == []


def test_backbones_that_are_drawn_share_nothing(drawn: Path, tmp_path: Path) -> None:
    backbone = {"name": "test_resnet", "weights": "none", "mode": "finetune"}
    trainer = Trainer(trial(drawn, backbone=backbone), 0, Runtime("cpu", 1, tmp_path))
    trainer.begin()
    assert not (tmp_path / "starts").exists()


def test_the_key_has_all_that_changes_them(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, count = torch.arange(5), 0

    def compute() -> torch.Tensor:
        return torch.full((5, 3), float(count))

    def found(given: TrialConfig, at: torch.Tensor = rows) -> float:
        return float(starting_features(given, tmp_path, CPU, at, compute)[0, 0])

    plain = trial(drawn)
    assert found(plain) == 0
    kinds = [
        plain.model_copy(update={part: getattr(plain, part).model_copy(update=values)})
        for part, values in [
            ("data", {"image_size": 40}),
            ("backbone", {"freeze_bn": not plain.backbone.freeze_bn}),
            ("backbone", {"pool": "max"}),
            ("training", {"precision": "bf16"}),
            ("training", {"channels_last": False}),
        ]
    ]
    for count, each in enumerate(kinds, 1):
        assert found(each) == count
    count += 1
    assert found(plain, rows.flip(0)) == count
    count += 1
    others = [
        (features, "kernels", lambda: "another"),
        (frozen_norms, "REVISION", 99),
        (features, "version", lambda name: f"{name} of tomorrow"),
    ]
    for where, name, value in others:
        with monkeypatch.context() as patched:
            patched.setattr(where, name, value)
            assert found(plain) == count
        count += 1
    assert found(plain) == 0 and found(kinds[0]) == 1
    same = plain.model_copy(update={"loss": kinds[0].loss.model_copy(update={"temperature": 0.5})})
    assert found(same) == 0


def test_another_fault_of_the_disk_is_raised(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, build: object) -> Path:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(features, "published", broken)
    with pytest.raises(OSError, match="no"):
        starting_features(trial(drawn), tmp_path, CPU, torch.arange(2), lambda: torch.ones(2, 3))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_a_disk_that_is_full_stops_nobody(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(folder: Path, build: Callable[[Path], None]) -> Path:
        for name in ("features", "weight"):
            (tmp_path / f"{name}.npy").symlink_to("/dev/full")
        build(tmp_path)
        return tmp_path

    rows, given = torch.arange(2000), trial(drawn)
    monkeypatch.setattr(features, "published", full)
    with caplog.at_level(logging.WARNING, "trainables"):
        found = starting_features(given, tmp_path, CPU, rows, lambda: torch.ones(2000, 30))
    assert found.equal(torch.ones(2000, 30)) and "are not kept" in caplog.text
    (tmp_path / "features.npy").unlink()
    (tmp_path / "weight.npy").unlink()
    caplog.clear()
    monkeypatch.setattr(principal, "published", full)
    with caplog.at_level(logging.WARNING, "trainables"):
        start = principal.kept_start(tmp_path)(torch.eye(40), 30)
    assert start[0].shape == (30, 40) and "are not kept" in caplog.text


def test_objects_are_not_unpickled(drawn: Path, tmp_path: Path) -> None:
    rows, given = torch.arange(2), trial(drawn)
    starting_features(given, tmp_path, CPU, rows, lambda: torch.ones(2, 3))
    [file] = kept(tmp_path)
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    # Its digest tells: it is made again.
    assert starting_features(given, tmp_path, CPU, rows, lambda: torch.ones(2, 3)).shape == (2, 3)
