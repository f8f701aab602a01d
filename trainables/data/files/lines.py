"""The lines of a data set's own text files; a fault names file, line and what stands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainables.errors import ConfigError

SHOWN = 80  # characters of a line


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
