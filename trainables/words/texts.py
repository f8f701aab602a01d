"""Refuse characters in users' texts that a file name, a database or a terminal cannot hold.

A NUL ends a file name. A lone surrogate, as which Python reads a byte that is not UTF-8, cannot be
encoded, so it can be neither hashed nor stored. An escape code moves a terminal's cursor.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.words.errors import ConfigError

LARGEST = 2**63 - 1  # of integers, which stores and tensors hold in 64 bits

# control characters except tab and line breaks, and lone surrogates
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# for a terminal also characters that break a line or change its direction
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def find_unfit_character(text: str) -> str | None:
    """Describe the first character of `text` that no name may contain; None if there is none."""
    match = _UNFIT.search(text)
    if match is None:
        return None
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # Python's stand-in for a byte that is not UTF-8
        return f"a byte that is not UTF-8 (\\x{code - 0xDC00:02x})"
    kind = "half a character" if code >= 0xD800 else "a control character"  # a lone surrogate
    return f"{'a NUL character' if code == 0 else kind} ({escape_control_characters(match[0])})"


def check_text(text: str, where: str, *, show: bool = True) -> str:
    """Return `text` unchanged, or refuse a control character or a lone surrogate in it.

    The error names the option or key `where`, and quotes the text if `show`.
    """
    character = find_unfit_character(text)
    if character is not None:
        raise ConfigError(
            where,
            f"The text contains {character}"
            + (f" in '{escape_control_characters(text[:60])}'" if show else ""),
            "Remove the character",
        )
    return text


def check_option(text: str, option: str, *, show: bool = True) -> str:
    """Return an option's value unchanged; refuse control characters and an empty value.

    An empty value usually comes from an unset variable in a script.
    """
    if not text:
        raise ConfigError(option, "The value is empty", "Give a value, or leave the option out")
    return check_text(text, option, show=show)


def check_values(value: Any, where: str) -> None:
    """Refuse texts with control characters and integers of more than 64 bits in nested `value`."""
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise build_length_error(where)
    elif isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in pairs:
            check_text(str(key), where)
            check_values(inner, f"{where}.{key}" if where else str(key))


def build_length_error(where: str) -> ConfigError:
    """Return the error for an integer of more than 64 bits."""
    return ConfigError(
        where, f"An integer must be between {-LARGEST} and {LARGEST}", "Write fewer digits"
    )


def expand_user_path(text: str | Path, where: str) -> Path:
    """Convert a user's text to a path, with `~` and `~name` expanded to home folders."""
    path = check_text(str(text), where)
    if not path.strip():
        raise ConfigError(where, f"{path!r} is not a path", "Write `.` for the current folder")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        first = path.split("/")[0]  # `~` or `~name`
        user = first.removeprefix("~") or "this user"
        raise ConfigError(
            where,
            f"{path}: {user} has no home folder",
            f"Write the whole path, or ./{first} for a file of that name",
        ) from None


def escape_control_characters(text: str) -> str:
    """Replace control characters except tab and newline by their codes (`\\x1b`)."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _HIDDEN.sub(escape, text)
