"""The files that leave and come back: whole, or one clear error; and who runs which part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainables.jobs.batch import made
from trainables.errors import ConfigError
from trainables.jobs.batch import files
from trainables.jobs.batch.__main__ import parse_shard
from trainables.jobs.batch.files import mark_folder, read_cells, read_mark
from trainables.jobs.batch.runner import read_epochs, record_epochs


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    return made.written(tmp_path / "cells.jsonl", made.synthetic(3))


def test_cells_arrive_as_they_were_sent(cells: Path) -> None:
    source, entries = read_cells(cells)
    assert source == made.SOURCE and entries == made.synthetic(3)
    texts = cells.read_text().splitlines()
    assert all(isinstance(json.loads(text), dict) for text in texts) and len(texts) == 4


def test_a_file_that_is_cut_off_anywhere_is_one_error(cells: Path) -> None:
    data = cells.read_bytes()
    for size in [*range(0, len(data), 97), len(data) - 1]:
        cells.write_bytes(data[:size])
        with pytest.raises(ConfigError, match="cut off") as caught:
            read_cells(cells)
        assert "\n" not in str(caught.value) and caught.value.path == str(cells)


def test_a_file_of_which_any_byte_is_another_is_one_error(cells: Path) -> None:
    data = bytearray(cells.read_bytes())
    for at in range(0, len(data), 53):
        data[at] ^= 0x01
        cells.write_bytes(data)
        with pytest.raises(ConfigError, match=r"cells\.jsonl: found"):
            read_cells(cells)
        data[at] ^= 0x01


Edit = Callable[[list[str]], list[str]]
EDITS: list[tuple[Edit, str]] = [
    (lambda t: [t[0].replace("made", "mine"), *t[1:]], "changed after"),
    (lambda t: [*t[:2], t[2].replace('"seed":0', '"seed":7'), t[3]], "changed after"),
    (lambda t: t[:3], "cut off"),
    (lambda t: [*t, t[1]], "changed after"),
    (lambda t: [t[0], t[2], t[1], t[3]], "changed after"),
    (lambda t: ["name: x"], "of another kind"),
    (lambda t: [t[0].replace('"version":1', '"version":2'), *t[1:]], "version 2 of its format"),
]


@pytest.mark.parametrize(("edit", "found"), EDITS)
def test_a_file_edited_by_hand(cells: Path, edit: Edit, found: str) -> None:
    cells.write_text("".join(f"{line}\n" for line in edit(cells.read_text().splitlines())))
    with pytest.raises(ConfigError, match=found):
        read_cells(cells)


def test_no_file_or_a_sheet_of_another_kind(tmp_path: Path, cells: Path) -> None:
    with pytest.raises(ConfigError, match="no file to read"):
        read_cells(tmp_path / "none.jsonl")
    mark_folder(tmp_path, made.SOURCE)
    with pytest.raises(ConfigError, match="a sheet of 'batch'; expected a file that `ablate cells"):
        read_cells(tmp_path / files.BATCH_NAME)
    with pytest.raises(ConfigError, match="expected the folder of a batch"):
        read_mark(cells.parent / "elsewhere")


def test_a_folder_belongs_to_one_sweep(tmp_path: Path) -> None:
    from dataclasses import replace

    mark_folder(tmp_path, made.SOURCE)
    mark_folder(tmp_path, made.SOURCE)
    with pytest.raises(ConfigError, match=r"the folder of sweep made \(0123456789ab\)"):
        mark_folder(tmp_path, replace(made.SOURCE, sweep_id="ba9876543210"))


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "1/0", "a/b", "-1/3", "Slurm"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(ConfigError, match="--shard: found"):
        parse_shard(text, {})


def slurm(task: int, count: int, least: int, most: int, **more: int) -> dict[str, str]:
    values = {"ID": task, "COUNT": count, "MIN": least, "MAX": most, **more}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


def test_a_slurm_array_is_read_only_if_asked() -> None:
    environment = slurm(3, 4, 0, 3)
    assert parse_shard("1/1", environment) == (1, 1) and parse_shard("2/8", {}) == (2, 8)
    assert parse_shard("slurm", environment) == (4, 4)
    assert parse_shard("slurm", slurm(1, 8, 1, 8)) == (1, 8)
    assert parse_shard("slurm", slurm(5, 3, 1, 9, STEP=4)) == (2, 3)
    assert parse_shard("slurm", slurm(7, 1, 7, 7)) == (1, 1)
    with pytest.raises(ConfigError, match="without gaps"):
        parse_shard("slurm", slurm(3, 2, 3, 7))
    with pytest.raises(ConfigError, match="SLURM_ARRAY_TASK_ID=''"):
        parse_shard("slurm", {})


def test_epochs_that_are_told_again_count_as_told_last(tmp_path: Path) -> None:
    path = tmp_path / "epochs.jsonl"
    assert read_epochs(path) == []
    for epoch, loss in ((1, 0.5), (2, 0.4), (3, 0.3), (2, 0.45)):
        record_epochs(path, [{"epoch": epoch, "loss": loss}])
    assert read_epochs(path) == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.45}]
    with path.open("a") as file:
        file.write('{"epoch": 3, "lo')  # as a kill leaves it
    record_epochs(path, [{"epoch": 3, "loss": 0.2}, {"epoch": 4, "loss": 0.1}])
    assert [event["epoch"] for event in read_epochs(path)] == [1, 2, 3, 4]
