"""Read lists of data sets: text files, and MATLAB files of plain values.

Nothing in them is executed. An error names the file, and for text the line and its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import ConfigError

UNPACK = "unpack the data set again"
OFFICIAL = "take the file that its makers offer"
SHOWN = 80  # characters of a line


def build_damage_error(where: Path | str, fault: str, remedy: str = UNPACK) -> ConfigError:
    """Return the error for a file that differs from what its makers offer."""
    return ConfigError(str(where), f"{fault}: {remedy}.")


def build_line_error(path: Path, number: int, line: str, expected: str) -> ConfigError:
    shown = line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
    return build_damage_error(f"{path}:{number}", f"{shown!r} must be {expected}")


@contextmanager
def name_unreadable_file(path: Path | str, remedy: str = UNPACK) -> Iterator[None]:
    """Turn an OSError into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise build_damage_error(path, f"it cannot be read ({error.strerror})", remedy) from error


def iterate_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of each line that is not empty."""
    with name_unreadable_file(path):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise build_damage_error(path, f"the byte at {error.start} is not UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def parse_number(text: str) -> int:
    """Parse a number ≥ 0; ValueError for signs and other texts."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def iterate_fields(
    path: Path, expected: str, types: Sequence[Callable[[str], Any]], start: int = 0
) -> Iterator[tuple[int, list[Any]]]:
    """Yield number and fields of each line; the last field may contain blanks.

    Args:
        expected: content of a line, for the message.
        types: parsers of the fields, which raise ValueError.
        start: number of header lines to skip.
    """
    for number, line in islice(iterate_lines(path), start, None):
        try:
            texts = line.split(maxsplit=len(types) - 1)
            yield number, [parse(text) for parse, text in zip(types, texts, strict=True)]
        except ValueError:
            raise build_line_error(path, number, line, expected) from None


def read_structs(path: Path, variable: str, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return fields of a struct array: name → a plain value of each struct."""
    from scipy.io import loadmat  # only whoever reads one pays for it

    with name_unreadable_file(path):
        raw = path.read_bytes()
    try:
        table = loadmat(BytesIO(raw), variable_names=[variable], squeeze_me=True).get(variable)
    except MemoryError:
        raise
    except Exception as error:  # whatever its parsers meet: ValueError, TypeError, zlib.error…
        fault = f"the MATLAB file cannot be read ({error})"
        raise build_damage_error(path, fault, f"{OFFICIAL}, of MATLAB before 7.3") from error
    if not isinstance(table, np.ndarray) or not set(names) <= set(table.dtype.names or ()):
        fault = f"it has no {variable} with {' and '.join(names)}"
        raise build_damage_error(path, fault, OFFICIAL)
    columns = {name: list(table[name].reshape(-1)) for name in names}
    if any(isinstance(value, np.ndarray) for column in columns.values() for value in column):
        raise build_damage_error(path, f"a field of {variable} holds several values", OFFICIAL)
    return columns
