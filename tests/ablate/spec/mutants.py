"""Specs with faults: what hands, editors and merges do to a YAML file, drawn from a seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, -0.0, 10**20, 1e308, float("inf"), float("nan")),
    *("", " ", "text", "1e-3", "0x10", "ä.b", "a.b", ".", "..", "a..b", "{}", "{x}", "%s", "\n"),
    *("on", [], {}, [1], [None], [[]], [{}], {"a": 1}, {"": 1}, {"a.b": {"c": 1}}, {1: 2}),
    *({None: None}, {"name": 1}, {"name": "plain"}, {"low": 0, "high": 1}, {"choice": []}),
    *({"best_of": "tune"}, b"bytes", {"x": {"y": {}}}, [1, "a", None, {}], "x" * 500),
    *(list(range(50)), -(10**20), 1.0, 2.0, "!!python/object", (1, 2), 16**4000, 2**63, 1e-300),
    *(5e-324, "a\0b", "\ud800", "\x1b[2J", "~nobody-of-that-name", "=1+1", [True]),
    {"low": 0, "high": 1, "step": 1e-12},
)
TEXTS = (
    *("\t", ":", "-", "{", "}", "[", "]", "&a", "*a", "<<:", "'", '"', "#", "\x00", "é", "|", ">"),
    *("!t", "? ", "%", '"\\0"', '"\\ud800"', '"\\e[2J"', "0x" + "f" * 4000, "1e400"),
    "~nobody-of-that-name",
)


Place = tuple[Any, Any]  # a container, and the key or index in it


def places(data: Any) -> list[Place]:
    """Every value of a tree by where it stands."""
    found: list[Place] = []
    entries = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in entries:
        found.append((data, key))
        if isinstance(value, dict | list):
            found += places(value)
    return found


def _delete(rng: random.Random, place: Place, data: Any) -> None:
    del place[0][place[1]]


def _junk(rng: random.Random, place: Place, data: Any) -> None:
    place[0][place[1]] = copy.deepcopy(rng.choice(JUNK))


def _rename(rng: random.Random, place: Place, data: Any) -> None:
    held, key = place
    if isinstance(held, dict):
        text = str(key)
        at = rng.randrange(len(text) + 1)
        typo = text[:at] + rng.choice("abcxyz_. ") + text[at + rng.randrange(2) :]
        held[typo] = held.pop(key)
    else:
        held.insert(key, held[key])


def _exchange(rng: random.Random, place: Place, data: Any) -> None:
    other = rng.choice(places(data))
    mine, theirs = copy.deepcopy(place[0][place[1]]), copy.deepcopy(other[0][other[1]])
    place[0][place[1]], other[0][other[1]] = theirs, mine


def _copy(rng: random.Random, place: Place, data: Any) -> None:
    other = rng.choice(places(data))
    if isinstance(other[0], dict):
        other[0][str(place[1])] = copy.deepcopy(place[0][place[1]])


def _wrap(rng: random.Random, place: Place, data: Any) -> None:
    value = place[0][place[1]]
    place[0][place[1]] = rng.choice([[value], {"value": value}, [value, value], str(value)])


def _number(rng: random.Random, place: Place, data: Any) -> None:
    value = place[0][place[1]]
    if isinstance(value, int | float):
        place[0][place[1]] = rng.choice([-value, value * 1e6, value / 3, value + 1, 0, str(value)])
    else:
        _wrap(rng, place, data)


def _typo(rng: random.Random, place: Place, data: Any) -> None:
    value = place[0][place[1]]
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        place[0][place[1]] = value[:at] + value[at + 1 :]
    else:
        _junk(rng, place, data)


def _add(rng: random.Random, place: Place, data: Any) -> None:
    value = place[0][place[1]]
    if isinstance(value, dict):
        keys = ["sedes", "method.x", "name", "trial", "", "a.b.c", "around", "rank", "of"]
        value[rng.choice(keys)] = copy.deepcopy(rng.choice(JUNK))
    elif isinstance(value, list):
        value.append(copy.deepcopy(rng.choice(JUNK)))


Mutation = Callable[[random.Random, Place, Any], None]
MUTATIONS: tuple[Mutation, ...] = (
    *(_delete, _junk, _junk, _rename, _exchange, _copy, _wrap, _number, _typo, _add),
)


def of_data(data: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One to three faults in the tree that a file holds."""
    made = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        known = places(made)
        if known:
            rng.choice(MUTATIONS)(rng, rng.choice(known), made)
    return made


def of_text(text: str, rng: random.Random) -> str:
    """One to three faults in the lines of a file."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        line, kind = lines[at], rng.randrange(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, line)
        elif kind == 2:
            lines[at] = rng.choice((" ", "  ", "    ", "\t")) + line
        elif kind == 3:
            lines[at] = line[rng.randrange(3) :]
        elif kind == 4:
            spot = rng.randrange(len(line) + 1)
            lines[at] = line[:spot] + rng.choice(TEXTS) + line[spot:]
        elif kind == 5:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines = lines[: at + 1]
    return "\n".join(lines)
