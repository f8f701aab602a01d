"""A batch's folder that a stranger has made: one sentence, nothing written, no hang."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate.backends.batch_file import export_cells, import_batch
from ablate.ledger.ledger import Ledger
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import here, synthetic_settings
from trainables.jobs import trial_file as files
from trainables.jobs.trial_file import read_sheet, write_sheet
from trainables.words.errors import ConfigError

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-4]}}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger, `out`, and a batch of two trials that has ended, `work`."""
    top = tmp_path_factory.mktemp("batch")
    plan = specs.plan({**specs.spec(), "studies": {"grid": GRID}})
    export_cells(plan, synthetic_settings(top / "out"), top / "cells.jsonl")
    assert here(top / "cells.jsonl", top / "work") == 2
    return top


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine / "out", tmp_path / "out")
    return Path(shutil.copytree(pristine / "work", tmp_path / "work"))


def last_trial(work: Path) -> Path:
    """The one that is looked at last: what is written before it is seen would be seen here."""
    return sorted(work.glob("trials/*"))[-1]


def refused(work: Path) -> str:
    out = work.parent / "out"
    with pytest.raises(ConfigError) as caught:
        import_batch(work, out)
    with Ledger(out / "ledger.sqlite") as ledger:
        trials = {row["trial_id"] for row in ledger.query("SELECT * FROM trials")}
    assert last_trial(work).name not in trials
    assert "\n" not in str(caught.value)
    return str(caught.value)


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def device(path: Path, secret: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path, secret: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [link, fifo, device, folder])
def test_links_and_special_files(
    work: Path, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    for name in ("trial.log", "result.jsonl", "best.safetensors", "final.json"):
        secret, aside, path = tmp_path / "secret", tmp_path / "aside", last_trial(work) / name
        secret.write_bytes(path.read_bytes() if path.exists() else b"secret")
        shutil.copyfile(secret, aside)
        path.unlink(missing_ok=True)
        put(path, secret)
        assert name in refused(work)
        path.rmdir() if put is folder else path.unlink()
        shutil.copyfile(aside, path)


def test_folders_that_are_links(work: Path, tmp_path: Path) -> None:
    trial = last_trial(work)
    trial.rename(tmp_path / "aside")
    trial.symlink_to(tmp_path / "aside")
    assert "symbolic link" in refused(work)
    trial.unlink()
    (work / "trials").rename(tmp_path / "all")
    (work / "trials").symlink_to(tmp_path / "all")
    assert "the folder is a link" in refused(work)


def rewrite(work: Path, path: tuple[Any, ...], value: object) -> None:
    """Set a value in the head (0) or a line (1, 2, …, -1 is the last), and renew the digests."""
    file = last_trial(work) / files.RESULT_NAME
    head, lines = read_sheet(file, "result")
    node: Any = head if path[0] == 0 else lines[path[0] if path[0] < 0 else path[0] - 1]
    for key in path[1:-1]:
        node = node[key]
    node[path[-1]] = value
    write_sheet(file, "result", head, lines)


WRONG: list[tuple[tuple[Any, ...], object]] = [
    ((0, "seed"), "zero"),
    ((0, "seed"), 7),
    ((0, "config"), []),
    ((0, "config", "optimizer"), None),
    ((0, "code"), {"hashes": {}}),
    ((0, "files"), []),
    ((0, "files", "x/../../y"), "0" * 64),
]


@pytest.mark.parametrize(("path", "value"), WRONG)
def test_a_result_with_values_of_other_types_or_another_trial(
    work: Path, path: tuple[Any, ...], value: object
) -> None:
    rewrite(work, path, value)
    assert refused(work)


@pytest.mark.parametrize("name", [".lock", "final.json", "trial.log", "checkpoints"])
def test_what_lies_in_the_trials_folder_is_not_followed(
    work: Path, tmp_path: Path, name: str
) -> None:
    victim, there = tmp_path / "victim", work.parent / "out" / "trials" / last_trial(work).name
    victim.write_text("mine")
    there.mkdir(parents=True)
    (there / name).symlink_to(victim)
    try:
        import_batch(work, work.parent / "out")
    except ConfigError as error:
        assert name in str(error) and "\n" not in str(error)
    assert victim.read_text() == "mine"
