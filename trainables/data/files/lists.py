"""Data sets' own lists: lines of text files, and MATLAB files of plain values, in which nothing is
run; a fault names the file, and of a text the line and what stands there.

MATLAB's version 7.3 is another format under the same ending (HDF5), which no official data set here
uses and scipy does not read: it is refused, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import ConfigError

SHOWN = 80  # characters of a line
HDF5 = b"\x89HDF\r\n\x1a\n"
AT = (0, 512)  # where HDF5 may begin: MATLAB puts 512 bytes of text before it


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line that is not empty.

    Raises:
        ConfigError: the file is missing, unreadable or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            str(path), f"{error.strerror}", "a file of the data set", "Unpack it again"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            str(path), f"a byte that is not UTF-8 at {error.start}", "text", "Unpack it again"
        ) from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def fields(
    path: Path, expected: str, count: int, start: int = 0, *, rest: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line, however many blanks stand between them.

    Args:
        expected: what a line holds, for the message. count: how many fields.
        start: lines of a head that are passed over. rest: the last field may hold blanks.

    Raises:
        ConfigError: a line of more or fewer.
    """
    for place, (number, line) in enumerate(lines(path)):
        if place < start:
            continue
        found = line.split(maxsplit=count - 1) if rest else line.split()
        if len(found) != count:
            raise fault(path, number, line, expected)
        yield number, found


def whole(text: str, path: Path, number: int, line: str, expected: str) -> int:
    """A count or number from 0.

    Raises:
        ConfigError: it is none.
    """
    if not (text.isascii() and text.isdigit()):
        raise fault(path, number, line, expected)
    return int(text)


def fault(path: Path, number: int, line: str, expected: str) -> ConfigError:
    shown = line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
    return ConfigError(f"{path}:{number}", repr(shown), expected, "Unpack the data set again")


def structs(path: Path, variable: str, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Fields of a struct array: name → a plain value of each struct.

    Raises:
        ConfigError: no such file, not of MATLAB before 7.3, or without this.
    """
    table = _variable(path, variable)
    missing = [name for name in names if name not in (table.dtype.names or ())]
    if missing:
        raise ConfigError(
            str(path),
            f"{variable} with {', '.join(table.dtype.names or ()) or 'no fields'}",
            f"{', '.join(names)}",
            "Give the file that its makers offer",
        )
    return {name: [_plain(value, path) for value in table[name].reshape(-1)] for name in names}


def _plain(value: Any, path: Path) -> Any:
    """The one value in arrays of arrays of it."""
    while isinstance(value, np.ndarray):
        if value.size != 1:
            raise ConfigError(
                str(path),
                f"{value.size} values where one is expected",
                "one value a field",
                "Give the file that its makers offer",
            )
        value = value.reshape(-1)[0]
    return value.item() if isinstance(value, np.generic) else value


def _variable(path: Path, name: str) -> np.ndarray:
    from scipy.io import loadmat  # only whoever reads one pays for it

    try:
        with path.open("rb") as file:
            head = file.read(AT[-1] + len(HDF5))
        if any(head[at : at + len(HDF5)] == HDF5 for at in AT):
            raise ConfigError(
                str(path),
                "a MATLAB file of version 7.3 (HDF5)",
                "one of version 7 or before, as its makers offer it",
                "Save it again in MATLAB with save(…, '-v7')",
            )
        content = loadmat(str(path), variable_names=[name])
    except (MemoryError, ConfigError):
        raise  # of the machine, and our own
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise ConfigError(
                str(path), f"{error.strerror}", "a file of the data set", "Unpack it again"
            ) from error
        # scipy's reader raises whatever its parsers meet: ValueError, TypeError, zlib.error…
        raise ConfigError(
            str(path),
            f"a MATLAB file that cannot be read ({error})",
            "a whole one of version 7 or before",
            "Unpack the data set again",
        ) from error
    found = content.get(name)
    if not isinstance(found, np.ndarray):
        raise ConfigError(
            str(path), f"no variable {name}", "it", "Give the file that its makers offer"
        )
    return found
