"""Read data sets' lists, which are text files; an error names file, line and its content."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from trainables.words.errors import ConfigError

MOST_CHARACTERS = 80  # of a line, in a message


def build_damage_error(where: Path | str, fault: str) -> ConfigError:
    """Return the error for a file that differs from what its makers offer."""
    return ConfigError(str(where), fault, "Unpack the data set again")


def find_list(root: Path, names: Sequence[str], offered: str) -> Path:
    """Return the first of the files `names` in `root` that exists; `offered` says where it is."""
    path = next((root / name for name in names if (root / name).is_file()), None)
    if path is None:
        raise ConfigError(
            "data.root",
            f"{root} has no {' or '.join(names)}",
            f"Put the file there; it is offered at {offered}",
        )
    return path


def build_line_error(path: Path, number: int, line: str, expected: str) -> ConfigError:
    excerpt = line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}…"
    return build_damage_error(f"{path}:{number}", f"the line {excerpt!r} must be {expected}")


@contextmanager
def name_unreadable_file(path: Path | str) -> Iterator[None]:
    """Turn an OSError into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            str(path),
            f"the file cannot be read ({error.strerror})",
            "Check its permissions, or unpack the data set again",
        ) from error


def iterate_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of each line that is not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise build_damage_error(path, f"the list cannot be read ({error})") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def iterate_fields(
    path: Path, expected: str, types: Sequence[Callable[[str], Any]], start: int = 0
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the parsed fields of each line; only the last field may contain blanks.

    Args:
        expected: how a line must look, for the error message.
        types: parsers of the fields, which raise ValueError.
        start: number of header lines to skip.
    """
    for number, line in islice(iterate_lines(path), start, None):
        try:
            texts = line.split(maxsplit=len(types) - 1)
            yield number, [parse(text) for parse, text in zip(types, texts, strict=True)]
        except ValueError:
            raise build_line_error(path, number, line, expected) from None
