"""Tables of images that a stranger made: one sentence each, no waiting, bounded memory."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainables.config.images import DataConfig
from trainables.data.sets import manifest
from trainables.errors import ConfigError


def refused(root: Path) -> str:
    config = DataConfig(name="manifest", root=str(root))
    with pytest.raises(ConfigError) as caught:
        manifest.Manifest.build_index(config)
    return str(caught.value)


@pytest.mark.parametrize("name", ["manifest.csv", "manifest.parquet"])
def test_a_table_is_a_regular_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    refused(tmp_path)
    refused(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    refused(tmp_path)
    refused(tmp_path / name)


def test_a_small_file_does_not_unpack_to_gigabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "manifest.parquet"
    paths = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["x" * 10**6])
    pq.write_table(pa.table({"path": paths, "label": pa.array(["a"] * 20_000)}), path)
    assert path.stat().st_size < 10**6  # 20 GB of text
    assert "1,000,000 bytes in the column path" in refused(path)
    monkeypatch.setattr(manifest, "MOST_ROWS", 100)
    assert "20,000 rows" in refused(path)


def test_a_repeated_path_ends_the_reading(tmp_path: Path) -> None:
    """However many rows repeat it: 20 million are 100 kilobytes of a file."""
    path = tmp_path / "manifest.parquet"
    block = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5_000_000, np.int8)), ["a.png"])
    table = pa.table({"path": block, "label": block})
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(4):
            writer.write_table(table)
    assert path.stat().st_size < 2 * 10**5
    tracemalloc.start()
    assert "a.png twice" in refused(path)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


def test_repeated_large_images_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    table = {"image": pa.array([b"\0" * 10**6] * 240, pa.binary()), "label": list("abc") * 80}
    pq.write_table(pa.table(table), path, compression="zstd")
    before = pa.total_allocated_bytes()
    for content in manifest._iterate_contents(path):
        assert len(content) == 10**6
        assert pa.total_allocated_bytes() - before < 6e7  # of 2.4e8
