"""A table of images: `data.root` is a CSV file, or a folder with `manifest.csv`.

    path    of the image, relative to the table's folder
    label   its class, text or a number
    split   train, val or test; left out, or empty throughout: data.split deals the classes
    role    query or gallery, of test or val images that are only looked for or only found

Validation images of their own are used where classes would be held out; under folds and under
protocol "paper" they count as training images.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, PARTS, ROLES, Row
from trainables.data.files.data_set_markers import resolve_data_root
from trainables.data.files.fileset import FileSet, Listing
from trainables.errors import ConfigError

GIVE_FILE = "Give --data-root FILE, a CSV file, or a folder with manifest.csv"
SPLITS = {**{part: part for part in PARTS}, "validation": "val"}


@DATASETS.register("manifest")
class Manifest(FileSet):
    """Images whose classes and splits a CSV file lists."""

    @classmethod
    def locate_root(cls, config: DataConfig) -> Path:
        """Return the CSV file: `data.root`, or manifest.csv in the folder `data.root`."""
        root = resolve_data_root(config)
        if root is None:
            raise ConfigError(
                "data.root", "no file is given", f"{GIVE_FILE} (evaluate: manifest=FILE)"
            )
        if root.is_dir():
            root /= "manifest.csv"
        if root.suffix.lower() != ".csv" or not root.is_file():
            raise ConfigError("data.root", f"{root} is not a CSV file", GIVE_FILE)
        return root

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        return Listing(root.parent, root, _read_rows(root))


def _read_rows(table: Path) -> Iterator[Row]:
    """Yield the images that a CSV file lists; a ConfigError names the row that is wrong."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or ()
            if not {"path", "label"} <= {*columns}:
                raise ConfigError(
                    str(table),
                    f"the table's columns are {', '.join(columns) or 'none'}",
                    "It must have columns `path` and `label`",
                )
            for number, row in enumerate(reader, 1):
                yield _parse_row(row, f"{table}: row {number}")
    except ConfigError:
        raise
    except (ValueError, csv.Error) as error:
        raise ConfigError(
            str(table), f"the table cannot be read ({error})", "Give a complete CSV file in UTF-8"
        ) from error


def _parse_row(row: dict[str, str], where: str) -> Row:
    """Return the image of a row of the table, checked; `where` names the row in errors."""
    path, label, split, role = (
        (row.get(name) or "").strip() for name in ("path", "label", "split", "role")
    )
    if not path or not label:
        raise ConfigError(where, f"path {path!r} or label {label!r} is empty", "Write both")
    if split not in SPLITS:
        raise ConfigError(
            where, f"split {split!r} is unknown", "Write train, val or test, or nothing"
        )
    if role not in ROLES or (role and SPLITS[split] not in ("val", "test")):
        raise ConfigError(
            where,
            f"the role {role!r} does not fit the split {split!r}",
            "Only images of val and test may have a role, which is query or gallery",
        )
    return Row(path, label, SPLITS[split], role)
