"""Python's pickles of plain values and arrays of bytes, read without running any of them.

A pickle is a program: `pickle.load` calls whatever it names. CIFAR's python archives need little
of that language (Python 2 wrote them, protocol 2): texts, whole numbers, lists, tuples,
dictionaries, and numpy arrays of uint8. This reader has a stack and a memory of its own, knows
those instructions and no others, and calls nothing that the file names: an array's three names
stand for themselves, and its bytes are looked at only when they are as many as its shape says.
Anything else is refused by name.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainables.errors import ConfigError

_REBUILD = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NAMES = (*_REBUILD, "numpy ndarray", "numpy dtype", "_codecs encode")
_PUSH = {
    "BININT",
    "BININT1",
    "BININT2",
    "INT",
    "LONG1",
    "SHORT_BINSTRING",
    "BINSTRING",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINBYTES",
    "SHORT_BINBYTES",
}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SKIPPED = ("PROTO", "FRAME", "STOP")
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """Of a function or class that the pickle asks for; never looked up."""

    text: str


@dataclass
class _Array:
    """An array before its state is known, and then with it. dtype: as `dtype('u1')` began."""

    values: np.ndarray | None = None
    dtype: str | None = None


class _Unknown(ValueError):
    """An instruction, a name or a shape that no such file has."""


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary that the file holds, its keys as text; arrays are uint8.

    Raises:
        ConfigError: it cannot be read, or holds anything but plain values and arrays of bytes.
    """
    try:
        found = _value(pickletools.genops(path.read_bytes()))
        if not isinstance(found, dict):
            raise _Unknown(f"a {type(found).__name__}, not a dictionary")
        return {_text(key): _plain(value) for key, value in found.items()}
    except OSError as error:
        raise ConfigError(
            str(path), f"{error.strerror}", "a file of the data set", "Unpack it again"
        ) from error
    except (ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            str(path),
            f"a pickle that cannot be read safely ({error})",
            "plain values and arrays of bytes, as its makers offer it",
            "Unpack it again, or take the binary version",
        ) from error


def _value(program: Iterator[tuple[Any, Any, int | None]]) -> Any:
    stack: list[Any] = []
    memory: dict[int, Any] = {}
    for code, argument, _ in program:
        name = code.name
        if name in _PUSH:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memory[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memory[int(argument)])
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "GLOBAL":
            stack.append(_named(argument))
        elif name not in _SKIPPED:
            _combine(name, stack)
    if len(stack) != 1:
        raise _Unknown(f"{len(stack)} values where one is expected")
    return stack[0]


def _combine(name: str, stack: list[Any]) -> None:
    """Instructions that take values off the stack."""
    if name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[name])
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(name[-1])
        stack[-count:] = [tuple(stack[-count:])]
    elif name == "TUPLE":
        stack.append(tuple(_marked(stack)))
    elif name == "APPEND":
        item = stack.pop()
        _of(stack[-1], list).append(item)
    elif name == "APPENDS":
        items = _marked(stack)
        _of(stack[-1], list).extend(items)
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _of(stack[-1], dict)[key] = value
    elif name == "SETITEMS":
        items = _marked(stack)
        _of(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
    elif name == "REDUCE":
        arguments, called = stack.pop(), stack.pop()
        stack.append(_made(_of(called, _Name), _of(arguments, tuple)))
    elif name == "BUILD":
        state = stack.pop()
        _filled(_of(stack[-1], _Array), _of(state, tuple))
    else:
        raise _Unknown(f"the instruction {name}")


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Unknown(f"a {type(value).__name__} where a {kind.__name__.strip('_')} is expected")
    return value


def _marked(stack: list[Any]) -> list[Any]:
    """All above the last mark, which goes too."""
    place = next(i for i in range(len(stack) - 1, -2, -1) if i < 0 or stack[i] is _MARK)
    if place < 0:
        raise _Unknown("an end without a beginning")
    items = stack[place + 1 :]
    del stack[place:]
    return items


def _named(text: str) -> _Name:
    if text not in _NAMES:
        raise _Unknown(f"the name {text.replace(' ', '.')}")
    return _Name(text)


def _made(called: _Name, arguments: tuple[Any, ...]) -> Any:
    """What the three calls of an array, and Python 3's form of bytes in protocol 2, stand for."""
    if called.text in _REBUILD and arguments[:1] == (_Name("numpy ndarray"),):
        return _Array()
    if called.text == "numpy dtype":
        return _Array(dtype=_text(arguments[0]))
    if called.text == "_codecs encode" and arguments[1:] == ("latin1",):
        return _of(arguments[0], str).encode("latin1")
    raise _Unknown(f"a call of {called.text.replace(' ', '.')}")


def _filled(array: _Array, state: tuple[Any, ...]) -> None:
    """A dtype's state changes nothing of u1; an array's is (1, shape, dtype, by columns, bytes)."""
    if array.dtype is not None:
        return
    _, shape, kind, by_columns, content = state
    raw = content.encode("latin1") if isinstance(content, str) else content
    if _of(kind, _Array).dtype != "u1" or not isinstance(raw, bytes):
        raise _Unknown(f"an array of {_of(kind, _Array).dtype}, not of bytes (u1)")
    sizes = tuple(int(size) for size in _of(shape, tuple))
    if min(sizes, default=0) < 0 or math.prod(sizes) != len(raw):
        raise _Unknown(f"{len(raw)} bytes of an array of shape {sizes}")
    array.values = np.frombuffer(raw, np.uint8).reshape(sizes, order="F" if by_columns else "C")


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.values is None:
            raise _Unknown("an array without content")
        return value.values
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
