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
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS
from trainables.data.decode import Picture
from trainables.data.files.data_set_markers import build_unreadable_error, get_given_root
from trainables.data.files.fileset import FileSet, Listing
from trainables.data.files.hashes import hash_files
from trainables.data.files.index import PARTS, ROLES, Index, Row
from trainables.errors import ConfigError
from trainables.machine.files import open_regular

COLUMNS = ("path", "label", "split", "role")  # of texts
USUAL = ("manifest.parquet", "manifest.csv")
EXPECTED = f"a CSV or Parquet file, or a folder with {' or '.join(USUAL)}"
AT_ONCE = 256  # rows that are read together
IMAGES_AT_ONCE = 8  # few kilobytes of a file can stand for gigabytes of them
MOST_ROWS = 20_000_000  # of a table: ImageNet-21k has 14 million; a row takes 110 bytes
MOST_TEXT = 2**16  # bytes of a path or label
MOST_CSV = 2**32  # bytes
MOST_LINE = 2**20  # characters of a line of a CSV
SPLITS = {**{part: part for part in PARTS}, "validation": "val"}


@DATASETS.register("manifest")
class Manifest(FileSet):
    """Images beside the table, or in it."""

    NAME = "manifest"
    REVISION = 1

    @classmethod
    def locate_root(cls, config: DataConfig) -> Path:
        root = get_given_root(config)
        if root is None:
            raise ConfigError("data.root", f"it is not given: give --data-root FILE, {EXPECTED}.")
        try:
            if root.is_dir():
                inside = {entry.name for entry in root.iterdir()}
                root /= next((name for name in USUAL if name in inside), "")
            if root.suffix.lower() not in (".csv", ".parquet"):
                raise ConfigError("data.root", f"{root} is not {EXPECTED}: give one.")
            # One that can be read without waiting, and is of a bounded size.
            open_regular(root, most_bytes=MOST_CSV if _is_csv(root) else None).close()
        except OSError as error:
            raise build_unreadable_error(root, error) from error
        return root

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        return Listing(root, root, _build_rows(root))

    @classmethod
    def find_present(cls, listed: Index) -> np.ndarray:
        if _has_embedded_images(listed.base):
            return np.ones(len(listed), bool)
        return replace(listed, base=listed.base.parent).find_present()

    @classmethod
    def compute_digest(cls, index: Index, cache: Path) -> str:
        """Hash the table alone where the images are in it."""
        table = index.base
        if not _has_embedded_images(table):
            return super().compute_digest(replace(index, base=table.parent), cache)
        content = hash_files(table.parent, [table.name], cache / cls.NAME)[table.name]
        return hashlib.sha256(f"{cls.NAME} {cls.REVISION}{content}".encode()).hexdigest()

    @classmethod
    def iterate_pictures(cls, index: Index, first: int = 0) -> Iterator[Picture]:
        folder = index.base.parent
        if not _has_embedded_images(index.base):
            yield from super().iterate_pictures(replace(index, base=folder), first)
            return
        for row, content in enumerate(islice(_iterate_contents(index.base), first, None), first):
            yield Picture(folder / index.paths[row], content)


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
            raise ConfigError(where, f"{path} has no label: write the class of each image.")
        if split not in SPLITS:
            raise ConfigError(where, f"split {split!r} must be train, val, test or empty.")
        if role not in ROLES or (role and SPLITS[split] not in ("val", "test")):
            fault = f"role {role!r} of split {split!r} must be query or gallery of val or test"
            raise ConfigError(where, f"{fault}, or empty.")
        yield Row(path, label, SPLITS[split], role)


def _iterate_table(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows without the images."""
    try:
        yield from _read_csv(path) if _is_csv(path) else _read_parquet(path)
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are of the first two
        if isinstance(error, ConfigError):
            raise
        message = f"the table cannot be read ({error}): give a whole CSV or Parquet file."
        raise ConfigError(str(path), message) from error


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    def read_lines(file: TextIO) -> Iterator[str]:
        # A file without a line's end must not fill memory.
        for number, line in enumerate(iter(partial(file.readline, MOST_LINE), ""), 1):
            if len(line) == MOST_LINE and not line.endswith("\n"):
                message = f"it has {MOST_LINE:,} characters or more: write a line for each image."
                raise ConfigError(f"{path}: line {number}", message)
            yield line

    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(read_lines(file), strict=True)
        _check_columns(path, list(reader.fieldnames or ()), ("path", "label"))
        yield from reader


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa  # only whoever reads one pays for it
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(path)
    names = list(opened.schema_arrow.names)
    _check_columns(path, names, ("label",) if "image" in names else ("path", "label"))
    if (count := opened.metadata.num_rows) > MOST_ROWS:
        raise ConfigError(str(path), f"{count:,} rows are more than {MOST_ROWS:,}: divide it.")
    texts = [name for name in names if name in COLUMNS]
    # Repeated texts stay dictionaries: a few kilobytes can stand for gigabytes of them.
    opened = pq.ParquetFile(path, read_dictionary=texts)
    for batch in opened.iter_batches(AT_ONCE, columns=texts):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column.dictionary if pa.types.is_dictionary(column.type) else column
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                longest = pc.max(pc.binary_length(values)).as_py() or 0
                if longest > MOST_TEXT:
                    text = f"a text of {longest:,} bytes in the column {name} is longer than "
                    raise ConfigError(str(path), f"{text}{MOST_TEXT:,}: shorten it.")
        yield from batch.to_pylist()


def _check_columns(path: Path, names: list[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        columns, needs = ", ".join(map(str, names)) or "no columns", " and ".join(missing)
        raise ConfigError(str(path), f"it has {columns}, and needs {needs}: name the columns so.")


def _has_embedded_images(table: Path) -> bool:
    if _is_csv(table):
        return False
    import pyarrow.parquet as pq

    return "image" in pq.read_schema(table).names


def _iterate_contents(table: Path) -> Iterator[bytes]:
    """Yield the images of all rows, a few at a time."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(table).iter_batches(IMAGES_AT_ONCE, columns=["image"]):
        for scalar in batch.column(0):
            value = scalar.as_py()
            content = value.get("bytes") if isinstance(value, dict) else value
            yield content if isinstance(content, bytes) else b""  # an image that cannot be read
