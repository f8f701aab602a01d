"""Read CIFAR's pickles without running any code of theirs.

A pickle is a program: `pickle.load` calls whatever it names. CIFAR's python archives name four
functions, which rebuild numpy arrays of uint8. This reader admits these four and puts functions of
its own in their place, so that nothing else can be called, by whatever instruction.
"""

from __future__ import annotations

import math
import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import ConfigError


class _Dtype:
    """A numpy dtype: its name, which its state does not change for bytes."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name.decode() if isinstance(name, bytes) else str(name)

    def __setstate__(self, state: Any) -> None:
        pass


class _Array:
    """A numpy array, empty until its state (version, shape, dtype, by columns, bytes) is set."""

    values: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, content = state
        raw = content.encode("latin1") if isinstance(content, str) else content
        kind = dtype.name if isinstance(dtype, _Dtype) else type(dtype).__name__
        if kind != "u1" or not isinstance(raw, bytes):
            raise pickle.UnpicklingError(f"it holds an array of {kind}, not of bytes (u1)")
        sizes = tuple(int(size) for size in shape)
        if min(sizes, default=0) < 0 or math.prod(sizes) != len(raw):
            raise pickle.UnpicklingError(f"an array of shape {sizes} has {len(raw)} bytes")
        order = "F" if by_columns else "C"
        self.values = np.frombuffer(raw, np.uint8).reshape(sizes, order=order)  # type: ignore[call-overload]


def _rebuild_array(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    """Return Python 3's form of bytes in protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it holds a text in {encoding}")
    return text.encode("latin1")


_ADMITTED: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": _rebuild_array,
    "numpy._core.multiarray._reconstruct": _rebuild_array,
    "numpy.ndarray": None,  # an argument of `_reconstruct` that needs no value
    "numpy.dtype": _Dtype,
    "_codecs.encode": _encode,
}


# The implementation in Python: the one in C takes memory for the largest number of a memo entry
# that a file names, which can be 64 GiB.
class _Reader(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for the name {module}.{name}") from None


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary that a file holds, its keys as text, its arrays as uint8.

    Raises:
        ConfigError: the file cannot be read, or holds more than plain values and arrays of bytes.
    """
    try:
        content = _Reader(BytesIO(path.read_bytes()), encoding="latin1").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dictionary")
        return {str(key): _unwrap(value) for key, value in content.items()}
    except OSError as error:
        raise ConfigError(
            str(path), f"{error.strerror}", "a file of the data set", "Unpack it again"
        ) from error
    except Exception as error:  # a damaged pickle fails with errors of any kind
        raise ConfigError(
            str(path),
            f"a pickle that cannot be read safely ({error})",
            "plain values and arrays of bytes, as its makers offer it",
            "Unpack it again, or take the binary version",
        ) from error


def _unwrap(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.values is None:
            raise pickle.UnpicklingError("it holds an array without content")
        return value.values
    return value
