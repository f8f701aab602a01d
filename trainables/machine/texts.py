"""Text from people: what a file name, a database or a terminal cannot hold, and paths of it.

A NUL ends a file name for the operating system; half a character (a lone surrogate, which is also
how Python shows a byte that is not UTF-8) has no bytes that could be hashed, stored or sent; an
escape code moves the cursor of the terminal that shows it. None of them belongs into a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.errors import ConfigError

LARGEST = 2**63 - 1  # of integers, which stores and tensors hold in 64 bits

# Control characters but tab and line breaks, which a caption may hold; lone surrogates.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# For a terminal also what turns the direction of a line or breaks it.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def find_unfit_character(text: str) -> str | None:
    """Return what `text` holds that no name may, in words; None if it is fit."""
    match = _UNFIT.search(text)
    if match is None:
        return None
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"a byte that is not UTF-8 (\\x{code - 0xDC00:02x})"
    kind = "half a character" if code >= 0xD800 else "a control character"
    return f"{'a NUL character' if code == 0 else kind} ({escape_control_characters(match[0])})"


def check_text(text: str, where: str, *, show: bool = True) -> str:
    """Return `text`, if it is fit. show: whether the message may hold some of it.

    Raises:
        ConfigError: it holds a control character or something that is no character.
    """
    what = find_unfit_character(text)
    if what is not None:
        inside = f" in '{escape_control_characters(text[:60])}'" if show else ""
        raise ConfigError(where, f"{what}{inside} is in it: remove it")
    return text


def check_option(text: str, option: str, *, show: bool = True) -> str:
    """Return what is given for an option, if it is fit and not empty: an empty one is most often a
    variable of a script that was never set, and would mean the default.

    Raises:
        ConfigError: it is not.
    """
    if not text:
        raise ConfigError(option, "it is empty: give a value, or leave the option out")
    return check_text(text, option, show=show)


def check_values(value: Any, where: str) -> None:
    """Check every text of a tree of values likewise, and every number for more than 64 bits.

    Raises:
        ConfigError: its path is the dotted place below `where`.
    """
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
    return ConfigError(
        where, f"an integer lies outside {-LARGEST} to {LARGEST}: write fewer digits"
    )


def expand_user_path(text: str | Path, where: str) -> Path:
    """Return a path as a person gives it, `~` for the home folder and `~name` for somebody's.

    Raises:
        ConfigError: an empty one, one that no file can have, or the home of nobody.
    """
    path = check_text(str(text), where)
    if not path.strip():
        raise ConfigError(where, f"{path!r} is no path; `.` is this folder")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = path.split("/")[0]
        raise ConfigError(
            where,
            f"{path} has no home folder of {user.removeprefix('~') or 'this user'}: write the "
            f"folder out ({user} written ./{user} is a name)",
        ) from None


def escape_control_characters(text: str) -> str:
    """Write out what would steer a terminal (`\\x1b`); line breaks and tabs stay."""

    def write_out(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _HIDDEN.sub(write_out, text)
