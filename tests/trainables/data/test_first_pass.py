"""A first pass that is killed goes on, and ends in the bytes of one that was left in peace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainables.data.first_pass import begin, kept, kill_after
from tests.trainables.data.trees import photographs
from trainables.config.images import DataConfig
from trainables.data.cache import JOURNAL, get_or_build, locate_unfinished
from trainables.data.dataset import load_dataset
from trainables.data.files import first_pass, store
from trainables.data.files.first_pass import GrowingFile
from trainables.machine import digests

ROWS = [bytes([number]) * (7 * number + 1) for number in range(40)]


def fill(folder: Path, rows: list[bytes], until: int | None = None) -> None:
    with GrowingFile(folder, "a.bin", 1) as out:
        for number, row in enumerate(rows[len(out.rows) : until], len(out.rows)):
            out.append_row(row, number)
    np.save(folder / "table.npy", np.array(out.rows))


def interrupt(folder: Path, after: int) -> None:
    """As by a Ctrl-C."""

    def build(fresh: Path) -> None:
        fill(fresh, ROWS, after)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_or_build(folder, build, goes_on=True)
    assert not folder.exists() and locate_unfinished(folder).is_dir()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    found = contents(get_or_build(tmp_path / "whole", lambda f: fill(f, ROWS), goes_on=True))
    assert found["a.bin"] == b"".join(ROWS) and JOURNAL not in found
    assert digests.find_damage(tmp_path / "whole") is None
    return found


@pytest.mark.parametrize("after", [0, 1, 17, 40])
def test_what_was_done_is_not_done_again(
    after: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    interrupt(tmp_path / "set", after)
    left = [b"" if number < after else row for number, row in enumerate(ROWS)]
    get_or_build(tmp_path / "set", lambda f: fill(f, left), goes_on=True)
    assert contents(tmp_path / "set") == whole
    assert not locate_unfinished(tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("spoil", "believed"),
    [
        (lambda data, journal: data.write_bytes(data.read_bytes()[:-1]), 29),
        (lambda data, journal: data.write_bytes(data.read_bytes() + b"torn"), 30),
        (lambda data, journal: data.unlink(), 0),
        (lambda data, journal: journal.unlink(), 0),
        (lambda data, journal: journal.write_bytes(journal.read_bytes()[:-5]), 29),
        (lambda data, journal: journal.write_bytes(journal.read_bytes() + bytes(64)), 30),
    ],
)
def test_what_was_left_damaged_is_not_believed(
    spoil: Any, believed: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    interrupt(tmp_path / "set", 30)
    folder = locate_unfinished(tmp_path / "set")
    spoil(folder / "a.bin", folder / JOURNAL)
    with GrowingFile(folder, "a.bin", 1) as out:
        assert len(out.rows) == believed
    get_or_build(tmp_path / "set", lambda f: fill(f, ROWS), goes_on=True)
    assert contents(tmp_path / "set") == whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pixels", "encoded"])
def test_a_first_pass_killed_at_some_instants(kind: str, tmp_path: Path) -> None:
    root = photographs(tmp_path / "photographs", 300)

    assert not kill_after(begin(root, tmp_path / "whole", kind), 600)
    kills = [
        kill_after(begin(root, tmp_path / "killed", kind), seconds)
        for seconds in (0.05, 0.1, 0.15, 0.2)
    ]
    assert sum(kills) >= 2, "it was never under way"
    assert not kill_after(begin(root, tmp_path / "killed", kind), 600)
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["pixels", "encoded"])
def test_images_that_are_there_are_not_decoded_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = photographs(tmp_path / "photographs", 60)
    config = DataConfig(name="folder", root=str(root), image_size=64, store=kind)
    read: list[str] = []
    add, ahead = GrowingFile.append_row, first_pass.map_ahead

    def some(self: GrowingFile, content: bytes, *numbers: int) -> None:
        if len(self.rows) == 40:
            raise KeyboardInterrupt
        add(self, content, *numbers)

    monkeypatch.setattr(GrowingFile, "append_row", some)
    with pytest.raises(KeyboardInterrupt):
        load_dataset(config, tmp_path / "cache")
    monkeypatch.setattr(GrowingFile, "append_row", add)

    def watched(work: Any, pictures: Any) -> Any:
        return ahead(work, (read.append(each.path.name) or each for each in pictures))

    monkeypatch.setattr(store, "map_ahead", watched)
    load_dataset(config, tmp_path / "cache")
    assert len(read) == 20
    load_dataset(config, tmp_path / "other")
    assert kept(tmp_path / "cache") == kept(tmp_path / "other")
