"""The files that leave and come back: whole, or one clear error; and who runs which part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainables.jobs import batches as made
from trainables.jobs import trial_file as files
from trainables.jobs.batch import parse_shard
from trainables.jobs.trial_file import read_cells, write_sheet
from trainables.words.errors import ConfigError


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    return made.written(tmp_path / "cells.jsonl", made.synthetic(3))


def test_cells_arrive_as_they_were_sent(cells: Path) -> None:
    source, entries = read_cells(cells)
    assert source == made.SOURCE and entries == made.synthetic(3)
    assert len(cells.read_text().splitlines()) == 4


def test_a_file_that_is_cut_off_or_altered_anywhere_is_one_error(cells: Path) -> None:
    data = cells.read_bytes()
    flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), 53)]
    for content in [data[:size] for size in [*range(0, len(data), 97), len(data) - 1]] + flipped:
        cells.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            read_cells(cells)
        assert "\n" not in str(caught.value) and caught.value.path == str(cells)


def test_a_file_of_another_kind_or_version_or_none(
    cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "VERSION", 2)
    with pytest.raises(ConfigError, match="of version 1"):
        read_cells(cells)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="no file to read"):
        read_cells(tmp_path / "none.jsonl")
    write_sheet(tmp_path / "result.jsonl", "result", {}, [])
    with pytest.raises(ConfigError, match="a sheet 'result'"):
        read_cells(tmp_path / "result.jsonl")


def test_shards() -> None:
    assert parse_shard("1/1") == (1, 1) and parse_shard("2/8") == (2, 8)
    for text in ("0/3", "4/3", "2", "1/0", "a/b", "-1/3", "slurm"):
        with pytest.raises(ConfigError, match=r"--shard: .* Slurm array"):
            parse_shard(text)
