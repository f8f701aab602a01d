"""What a value of the wrong kind should have been, and what to write instead, in words of YAML."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

UNLIKE = "Choose one of those"  # where nothing known is like what was found
_EXPECTED = {
    "dict_type": "a mapping (key: value)",
    "mapping_type": "a mapping (key: value)",
    "invalid_key": "text for a key (a number or a word of YAML needs quotes)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "string_type": "text (a number or a word of YAML needs quotes)",
    "list_type": "a list ([a, b])",
    "tuple_type": "a list ([a, b])",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a valid integer",
    "int_from_float": "a valid integer, without a fraction",
    "int_parsing": "a valid integer",
    "int_parsing_size": "a smaller integer",
    "float_type": "a valid number",
    "float_parsing": "a valid number",
}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "text of the form a_b-1.0: letters a to z, digits, _ . and -"
}
_MAPPING = "Write `key: value` on lines below it, indented"
_LIST = "Write [a, b], or entries that begin with `- ` on lines of their own"
_REMEDIES = {
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "bool_type": "Write the word without quotes",
    "bool_parsing": "Write the word without quotes",
    "int_parsing_size": "Write fewer digits",
    "finite_number": "Write one in digits",
    "too_short": "Add what is missing",
    "too_long": "Remove some",
    "string_too_long": "Shorten it",
}
_BOUNDS = {
    "greater_than": ("gt", "Give a number above"),
    "greater_than_equal": ("ge", "Give at least"),
    "less_than": ("lt", "Give less than"),
    "less_than_equal": ("le", "Give at most"),
}


def nearest(word: str, known: Iterable[str]) -> str:
    """A remedy: the closest known word, or what is known."""
    words = list(known)
    if not words:
        return "Remove it"
    close = closest(word, words)
    return f"Did you mean {close!r}?" if close else UNLIKE


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is meant, however its letters are written."""
    by_case = {each.casefold(): each for each in reversed(list(known))}
    close = difflib.get_close_matches(word.strip().casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def nearest_metric(word: str, known: Iterable[str]) -> str:
    """Likewise for a metric, which papers and people write as R@1, mAP@R or val/recall@4."""
    words = list(known)
    split, slash, name = word.strip().casefold().rpartition("/")
    split = split.rpartition("/")[2]
    split = {"validation": "val", "training": "train"}.get(split, split)
    name = re.sub(r"[@\s-]+", "_at_" if "@" in name else "_", name).strip("_")
    name = re.sub(r"^(r|p|recall|precision)_?(at_)?(\d+)$", r"recall_at_\3", name)
    name = {"map": "map_at_r", "rp": "r_precision", "f_1": "f1"}.get(name, name)
    whole = [f"{split}/{name}" if slash else f"val/{name}", name]
    near = next((each for each in whole if each in words), None) or closest(whole[0], words)
    near = near or closest(name, words)
    return f"Did you mean {near!r}?" if near else UNLIKE


def some_metrics(word: str, known: Iterable[str], most: int = 6) -> str:
    """A few known metrics for a message, those most like `word` first."""
    names = list(known)
    like = difflib.get_close_matches(word.casefold(), names, n=most, cutoff=0)
    hint = next((name for name in names if repr(name) in nearest_metric(word, names)), None)
    shown = list(dict.fromkeys([*([hint] if hint else []), *like]))[:most]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} others" if more > 0 else "")


def expected(fault: Mapping[str, Any]) -> str:
    """What pydantic expected, in the words of YAML rather than Python's."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind in ("too_short", "too_long"):
        bound = "least" if kind == "too_short" else "most"
        return f"at {bound} {context['min_length' if bound == 'least' else 'max_length']} of them"
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters"
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return _PATTERNS.get(pattern, f"text of the form {pattern}")
    return str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")


def remedy(fault: Mapping[str, Any]) -> str:
    """What to write instead."""
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind in _REMEDIES:
        return _REMEDIES[kind]
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {context[key]:.15g}"
    makers: dict[str, Callable[[], str]] = {
        "int_parsing": lambda: _number(value, whole=True),
        "int_type": lambda: _number(value, whole=True),
        "float_parsing": lambda: _number(value, whole=False),
        "float_type": lambda: _number(value, whole=False),
        "int_from_float": lambda: f"Write {math.floor(value)} or {math.ceil(value)}",
        "string_type": lambda: _quoted(value),
        "string_pattern_mismatch": lambda: _fitting(str(value)),
        "literal_error": lambda: nearest(
            str(value), re.findall(r"'([^']*)'", str(context["expected"]))
        ),
    }
    return makers.get(kind, lambda: "Correct it")()


def _fitting(given: str) -> str:
    fit = re.sub(r"[^A-Za-z0-9_.-]+", "_", given).strip("_.-")
    return f"Write {fit}" if fit else "Write it in letters of a to z and digits"


def _number(given: Any, *, whole: bool) -> str:
    """What was meant by a text that is no number: a comma, a unit, a sign too many."""
    if isinstance(given, list | tuple) and len(given) == 1:
        return "Write it without brackets"
    if not isinstance(given, str):
        return "Give one number" if given is not None else "Give a number, or remove the key"
    text = given.strip().rstrip(",;").replace("_", "")
    for tried in (text, text.replace(",", "."), text.replace(",", "")):
        scaled = re.fullmatch(r"(.*\d)\s*([kM%])", tried)
        try:
            number = float(scaled[1] if scaled else tried)
        except ValueError:
            continue
        number *= {"k": 1e3, "M": 1e6, "%": 1e-2}[scaled[2]] if scaled else 1
        if not whole or number.is_integer():
            return f"Write {number:.15g}"
    return f"Write it in digits, as in {'6' if whole else '0.5 or 1e-3'}"


def _quoted(value: Any) -> str:
    if value is None:
        return "Write a text, or remove the key"
    return f'Write "{json.dumps(value)}"' if isinstance(value, int | float) else "Write one text"
