"""A table of images: `data.root` is a CSV file, or a folder with `manifest.csv`.

    path    of the image, relative to the table's folder
    label   its class, text or a number
    split   train, val or test; left out, or empty throughout: data.split deals the classes
    role    query or gallery, of test or val images that are only looked for or only found

Validation images of their own are used where classes would be held out; under folds and under
protocol "paper" they count as training images.

Other columns are not read, and a note names them. A column whose name resembles one of these four
is refused, and so is one with the values of `split` or `role` if the table lacks that column: if it
were not read, the user's own division would be lost.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.archives import join_names, resolve_data_root
from trainables.data.dataset import DATASETS, PART_NAMES, PARTS, ROLES, Listing, Row
from trainables.data.fileset import FileSet
from trainables.words.errors import ConfigError

GIVE_FILE = "Give --data-root FILE, a CSV file, or a folder with manifest.csv"
VALUES = {
    "path": "relative to the table's folder",
    "label": "the class",
    "split": "train, val, test or empty",
    "role": "query, gallery or empty",
}
# names without blanks and capitals → the column for which they stand
SYNONYMS = {
    **{column: column for column in VALUES},
    **dict.fromkeys(("subset", "partition", "evaluationstatus"), "split"),  # the last: In-Shop's
    **{prefix + name: "split" for name in PART_NAMES for prefix in ("", "is")},
    **{prefix + name: "role" for name in ("query", "gallery") for prefix in ("", "is")},
}
# further names, and words in names, that stand for a column if the table lacks it
WEAK_SYNONYMS = dict.fromkeys(("part", "fold", "set"), "split")
WORDS = {name: SYNONYMS[name] for name in (*VALUES, "subset", "partition")}
SIMILARITY = 0.75  # of two names, at which one is taken for a misspelling: `spilt`, `rolle`


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
        """List the images of the CSV file; a ConfigError names the row that is wrong."""
        try:
            with root.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True)
                columns = next(reader, [])
                _check_columns(root, columns)
                lines = [(reader.line_num, fields) for fields in reader if fields]
                rows = list(_read_rows(root, columns, lines))
                _check_unread_values(root, columns, [fields for _, fields in lines])
        except ConfigError:
            raise
        except (ValueError, csv.Error) as error:
            raise ConfigError(
                str(root),
                f"the table cannot be read ({error})",
                "Give a complete CSV file in UTF-8",
            ) from error
        unread = [name or "(without a name)" for name in columns if name not in VALUES]
        note = f"columns of {root} that are not read: {join_names(unread)}"
        return Listing(root.parent, root, rows, notes=[note] if unread else [])


def _check_columns(table: Path, columns: Sequence[str]) -> None:
    """Refuse a column that is given twice or resembles a known one, and a table without images."""
    for name in columns:
        if name and columns.count(name) > 1:
            raise ConfigError(
                f"{table}: line 1",
                f"the table has {columns.count(name)} columns {name!r}",
                "Keep one of them",
            )
        known = None if len(columns) == 1 else _find_resembled(name, columns)
        if name not in VALUES and known is not None:
            raise ConfigError(
                f"{table}: line 1",
                f"the column {name!r} would not be read, but resembles `{known}`",
                f"Call it `{known}` ({VALUES[known]}), or give it another name if it is something "
                "else",
            )
    if not {"path", "label"} <= {*columns}:
        raise ConfigError(
            str(table),
            f"the table's columns are {', '.join(columns) or 'none'}",
            "It must have columns `path` and `label`, separated by commas",
        )


def _find_resembled(name: str, columns: Sequence[str]) -> str | None:
    """Return the known column that an unknown name resembles, or None.

    If the table lacks a known column, one of its words in a longer name is sufficient (`my_split`).
    """
    words = re.findall(r"[^\W_]+", name.lower())
    joined = "".join(words)
    if (known := SYNONYMS.get(joined) or SYNONYMS.get(joined.removesuffix("s"))) is not None:
        return known
    alternatives = [word for word in words if word not in ("is", "or", "and")]  # train_or_test
    if alternatives and all(word in SYNONYMS for word in alternatives):
        return SYNONYMS[alternatives[0]]
    equally_long = [column for column in VALUES if abs(len(column) - len(joined)) <= 1]
    close = get_close_matches(joined, equally_long, n=1, cutoff=SIMILARITY)
    if close and close[0] in ("split", "role"):
        return close[0]
    # a table that has `path` and `label` may well have a column `patch` or `label_source`
    candidates = [*close, WEAK_SYNONYMS.get(joined), *map(WORDS.get, words)]
    return next((column for column in candidates if column and column not in columns), None)


def _check_unread_values(
    table: Path, columns: Sequence[str], lines: Sequence[Sequence[str]]
) -> None:
    """Refuse a column whose values are those of a known column that the table lacks.

    Its name may be anything: `usage`, `phase`, `dataset`.
    """
    for number, name in enumerate(columns):
        texts = {line[number].strip().lower() for line in lines} - {""}
        for known, possible in (("split", PART_NAMES), ("role", ROLES)):
            is_known = name in VALUES or known in columns
            if not is_known and len(texts) > 1 and texts <= possible.keys():
                raise ConfigError(
                    f"{table}: line 1",
                    f"the column {name!r} would not be read, but has the values "
                    f"{join_names(sorted(texts))} of `{known}`",
                    f"Call it `{known}`, or remove it if it is something else",
                )


def _read_rows(
    table: Path, columns: Sequence[str], lines: Iterable[tuple[int, list[str]]]
) -> Iterator[Row]:
    """Yield the images of the lines below the head of a table, checked.

    A line is given by its number in the file, which a field in quotes may make larger than that of
    the row, and its fields, of which there are some.
    """
    for number, (line, fields) in enumerate(lines, 1):
        where = f"{table}: line {line}, row {number}"
        if len(fields) != len(columns):
            raise ConfigError(
                where,
                f"the row has {len(fields)} fields, and the head has {len(columns)}",
                "Put a field that contains a comma in quotes, and write no field less",
            )
        yield _parse_row(dict(zip(columns, fields, strict=True)), where)


def _parse_row(row: dict[str, str], where: str) -> Row:
    """Return the image of a row of the table, checked; `where` names the row in errors."""
    path, label, split, role = (row.get(name, "").strip() for name in VALUES)
    part, role = PART_NAMES.get(split.lower(), split), role.lower()
    if not path or not label:
        raise ConfigError(where, f"path {path!r} or label {label!r} is empty", "Write both")
    if part not in PARTS:
        raise ConfigError(
            where,
            f"split {split!r} must be train, val, test or empty",
            "Write query and gallery, if you have them, into the column `role`",
        )
    if role not in ROLES or (role and part not in ("val", "test")):
        raise ConfigError(
            where,
            f"the role {role!r} does not fit the split {split!r}",
            "Only images of val and test may have a role, which is query or gallery",
        )
    return Row(path, label, part, role)
