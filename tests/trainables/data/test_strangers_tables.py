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


def test_an_image_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "b.png")
    (tmp_path / "manifest.csv").write_text("path,label\na.png,x\nb.png,y\n")
    refused(tmp_path)
