"""A table of images: `data.root` is a CSV or Parquet file, or a folder with one (`USUAL`).

    path    of the image, relative to the table's folder
    label   its class, text or a number
    split   train, val or test; left out, or empty throughout: data.split deals the classes
    role    query or gallery, of test or val images that are only looked for or only found
    image   Parquet: the file's bytes, or a struct with `bytes`; path is then only a name, and may
            be left out

Validation images of their own are used where classes would be held out; under folds and under
protocol "paper" they count as training images.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, PARTS, ROLES, Index, Row
from trainables.data.decode import Picture
from trainables.data.files.data_set_markers import build_unreadable_error, resolve_data_root
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.hashes import hash_files
from trainables.errors import ConfigError
from trainables.machine.files import open_regular

COLUMNS = ("path", "label", "split", "role")  # of texts
USUAL = ("manifest.parquet", "manifest.csv")
EXPECTED = f"a CSV or Parquet file, or a folder with {' or '.join(USUAL)}"
IMAGES_AT_ONCE = 64  # that are read together
SPLITS = {**{part: part for part in PARTS}, "validation": "val"}


@DATASETS.register("manifest")
class Manifest(FileSet):
    """Images beside the table, or in it: the index's base is then the table itself."""

    NAME = "manifest"
    REVISION = 1

    @classmethod
    def locate_root(cls, config: DataConfig) -> Path:
        root = resolve_data_root(config)
        if root is None:
            raise ConfigError("data.root", f"it is not given. Give --data-root FILE, {EXPECTED}.")
        try:
            if root.is_dir():
                names = {entry.name for entry in root.iterdir()}
                root /= next((name for name in USUAL if name in names), "")
            if root.suffix.lower() not in (".csv", ".parquet"):
                raise ConfigError("data.root", f"{root} is not {EXPECTED}. Give one.")
            open_regular(root).close()  # refuse a pipe, at which reading would wait
        except OSError as error:
            raise build_unreadable_error(root, error) from error
        return root

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        base = root if not _is_csv(root) and _has_embedded_images(root) else root.parent
        return Listing(base, root, _build_rows(root))

    @classmethod
    def find_present(cls, listed: Index) -> np.ndarray:
        is_table = listed.base.is_file()
        return np.ones(len(listed.rows), bool) if is_table else super().find_present(listed)

    @classmethod
    def compute_digest(cls, index: Index, cache: Path) -> str:
        """Hash the table alone where the images are in it."""
        table = index.base
        if not table.is_file():
            return super().compute_digest(index, cache)
        content = hash_files(table.parent, [table.name], cache / cls.NAME)[table.name]
        return hashlib.sha256(f"{cls.NAME} {cls.REVISION}{content}".encode()).hexdigest()

    @classmethod
    def iterate_pictures(cls, index: Index) -> Iterator[Picture]:
        if not index.base.is_file():
            yield from super().iterate_pictures(index)
            return
        for row, content in zip(index.rows, _iterate_contents(index.base), strict=True):
            yield Picture(index.base / row.path, content)


def _is_csv(table: Path) -> bool:
    return table.suffix.lower() == ".csv"


def _build_rows(table: Path) -> Iterator[Row]:
    for number, row in enumerate(_iterate_table(table), 1):
        where = f"{table}: row {number}"
        path, label, split, role = (
            "" if row.get(name) is None else str(row[name]).strip() for name in COLUMNS
        )
        path = path or f"row {number:08d}"
        if not label:
            raise ConfigError(where, f"{path} has no label. Write the class of each image.")
        if split not in SPLITS:
            raise ConfigError(where, f"split {split!r} must be train, val, test or empty.")
        if role not in ROLES or (role and SPLITS[split] not in ("val", "test")):
            fault = f"role {role!r} of split {split!r} must be query or gallery of val or test"
            raise ConfigError(where, f"{fault}, or empty.")
        yield Row(path, label, SPLITS[split], role)


def _iterate_table(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows without the images."""
    try:
        if _is_csv(path):
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file, strict=True)
                _check_columns(path, reader.fieldnames or ())
                yield from reader
        else:
            import pyarrow.parquet as pq

            table = pq.ParquetFile(path)
            names = table.schema_arrow.names
            _check_columns(path, names)
            for batch in table.iter_batches(columns=[name for name in names if name in COLUMNS]):
                yield from batch.to_pylist()
    except ConfigError:
        raise
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are of the first two
        message = f"the table cannot be read ({error}). Give a whole CSV or Parquet file."
        raise ConfigError(str(path), message) from error


def _check_columns(path: Path, names: Sequence[str]) -> None:
    needs = ("label",) if "image" in names and not _is_csv(path) else ("path", "label")
    if missing := " and ".join(name for name in needs if name not in names):
        columns = ", ".join(map(str, names)) or "no columns"
        raise ConfigError(str(path), f"it has {columns}, and needs {missing}. Name the columns so.")


def _has_embedded_images(table: Path) -> bool:
    import pyarrow.parquet as pq

    try:
        return "image" in pq.read_schema(table).names
    except ValueError:  # it is no Parquet file, which reading its rows reports
        return False


def _iterate_contents(table: Path) -> Iterator[bytes]:
    """Yield the images of all rows, a few at a time."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(table).iter_batches(IMAGES_AT_ONCE, columns=["image"]):
        for value in batch.column(0).to_pylist():
            content = value.get("bytes") if isinstance(value, dict) else value
            yield content if isinstance(content, bytes) else b""  # an image that cannot be read
