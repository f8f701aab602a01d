"""Specs with faults: what hands, editors and merges do to a YAML file, drawn from a seed."""

from __future__ import annotations

import copy
import random
from typing import Any

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, -0.0, 10**20, 1e308, float("inf"), float("nan")),
    *("", " ", "text", "1e-3", "0x10", "ä.b", "a.b", ".", "..", "a..b", "{}", "{x}", "%s", "\n"),
    *("on", [], {}, [1], [None], [[]], [{}], {"a": 1}, {"": 1}, {"a.b": {"c": 1}}, {1: 2}),
    *({None: None}, {"name": 1}, {"name": "plain"}, {"low": 0, "high": 1}, {"choice": []}),
    *({"best_of": "tune"}, b"bytes", {"x": {"y": {}}}, [1, "a", None, {}], "x" * 500),
    *(list(range(50)), -(10**20), "!!python/object", (1, 2), 16**4000, 2**63, 5e-324),
    *("a\0b", "\ud800", "\x1b[2J", "~nobody-of-that-name", {"low": 0, "high": 1, "step": 1e-12}),
)
KEYS = ("sedes", "method.x", "name", "trial", "", "a.b.c", "around", "rank", "of")
TEXTS = (
    *("\t", ":", "-", "{", "}", "[", "]", "&a", "*a", "<<:", "'", '"', "#", "\x00", "é", "|", ">"),
    *("!t", "? ", "%", '"\\0"', '"\\ud800"', '"\\e[2J"', "0x" + "f" * 4000, "1e400"),
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every value of a tree, as a container and the key or index in it."""
    entries = list(data.items() if isinstance(data, dict) else enumerate(data))
    inner = [
        pair for _, value in entries if isinstance(value, dict | list) for pair in places(value)
    ]
    return [*((data, key) for key, _ in entries), *inner]


def to_text(value: Any) -> str:
    """Return the value as text; Python refuses to write integers of more than 4,300 digits."""
    try:
        return str(value)
    except ValueError:
        return "9" * 5000


def mutate(rng: random.Random, data: dict[str, Any]) -> None:
    """Put one fault into the tree."""
    holder, key = rng.choice(places(data))
    other, other_key = rng.choice(places(data))
    value, junk = holder[key], copy.deepcopy(rng.choice(JUNK))
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):  # a misspelt key
            at = rng.randrange(len(str(key)) + 1)
            holder[str(key)[:at] + rng.choice("abcxyz_. ") + str(key)[at:]] = holder.pop(key)
        case 2:
            copies = copy.deepcopy(other[other_key]), copy.deepcopy(value)
            holder[key], other[other_key] = copies
        case 3:
            holder[key] = rng.choice([[value], {"value": value}, [value, value], to_text(value)])
        case 4 if isinstance(value, int | float):
            holder[key] = rng.choice([-value, value * 1e6, value / 3, value + 1, 0, to_text(value)])
        case 5 if isinstance(value, str) and value:
            at = rng.randrange(len(value))
            holder[key] = value[:at] + value[at + 1 :]
        case 6 if isinstance(value, dict):
            value[rng.choice(KEYS)] = junk
        case _:
            holder[key] = junk


def of_data(data: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One to three faults in the tree that a file holds."""
    made = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if made:
            mutate(rng, made)
    return made


def of_text(text: str, rng: random.Random) -> str:
    """One to three faults in the lines of a file."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        line = lines[at]
        spot = rng.randrange(len(line) + 1)
        match rng.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines[at] = rng.choice((" ", "  ", "    ", "\t")) + line
            case 2:
                lines[at] = line[:spot] + rng.choice(TEXTS) + line[spot:]
            case 3:
                lines[at], lines[other] = lines[other], line
            case 4:
                lines = lines[: at + 1]
    return "\n".join(lines)
