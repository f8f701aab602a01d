"""MATLAB files of plain values, read through scipy; nothing in them is run.

Version 7.3 is another format under the same ending (HDF5), which no official data set here uses and
scipy does not read: it is refused, with what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import ConfigError

HDF5 = b"\x89HDF\r\n\x1a\n"
AT = (0, 512)  # where HDF5 may begin: MATLAB puts 512 bytes of text before it


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


def texts(path: Path, variable: str) -> list[str]:
    """A cell array of texts.

    Raises:
        ConfigError: as `structs`.
    """
    return [str(_plain(value, path)) for value in _variable(path, variable).reshape(-1)]


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
