"""Format metrics, coordinates and numbers for readers."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reports.recipe import Table, to_level_name
from trainables.words.metrics import display_scale

GREEK = {
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ"},
    **{"lambda": "λ", "omega": "ω", "epsilon": "ε", "tau": "τ"},
}


def format_coordinate(path: str) -> str:
    """Return `α` for `method.alpha`; a path without a Greek name keeps its last two parts."""
    parts = path.split(".")
    return GREEK.get(parts[-1], ".".join(parts[-2:]))


WORDS = re.compile(rf"\b({'|'.join(GREEK)})\b", re.IGNORECASE)


def replace_greek_names(text: str) -> str:
    """Write names of Greek letters as letters: `Fig. 4a (alpha = 1)` → `Fig. 4a (α = 1)`."""
    return WORDS.sub(lambda match: GREEK[match[1].lower()], text)


def format_coordinates(paths: Sequence[str]) -> list[str]:
    """Return labels of paths: `α` for `method.alpha`, or `method.α` if two labels were equal."""
    short = [format_coordinate(path) for path in paths]
    return [
        name if short.count(name) == 1 else replace_greek_names(path)
        for name, path in zip(short, paths, strict=True)
    ]


def format_number(value: float, digits: int) -> str:
    """Write a number with fixed digits; minus as a true minus sign, never `-0.00`."""
    return f"{value:z.{digits}f}".replace("-", "−")


def format_p(p: float | None) -> str:
    """Write p with three digits, or `<0.001`; empty without a test."""
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def format_ratio(value: float) -> str:
    """Write a positive ratio with two digits: `2e-6`, `0.35`, `8`, `12,000`."""
    if value and not 1e-3 <= value < 1e6:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{float(f'{value:.2g}'):,.4g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"


def format_confidence(level: float) -> str:
    """Write the level of an interval: `95 %`."""
    return f"{100 * level:.4g} %"


def format_level(value: Any) -> str:
    """Write a coordinate's value: 1e-05 → `1e-5`, a whole component → `arcface(margin=0.5)`."""
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        options = ", ".join(f"{key}={format_level(v)}" for key, v in value.items() if key != "name")
        return f"{value['name']}({options})" if options else str(value["name"])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value and math.isfinite(value) and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def is_baseline(recipe: Table, cell: str, levels: Mapping[str, Any]) -> bool:
    """Return whether the recipe's baseline, a name or coordinates, means a cell with `levels`."""
    baseline = recipe.baseline
    if isinstance(baseline, dict):
        shown = {name: format_level(to_level_name(levels.get(name))) for name in baseline}
        return all(shown[name] == format_level(value) for name, value in baseline.items())
    if baseline is not None:
        return baseline in (cell, levels.get("variant"))
    # the recipe names none: the first row of a comparison, or all components off
    return recipe.kind == "compare" or "on" not in levels.values()


def to_slug(text: str) -> str:
    """Turn a text into a file name and HTML id: lower case, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "x"


def format_signed_metric(value: float, metric: str, digits: int) -> str:
    """Write a difference with its sign, in the unit in which the metric is shown."""
    return format_signed(value * display_scale(metric), digits)


def format_signed(value: float, digits: int) -> str:
    """Write a number with its sign, plus too."""
    return f"{value:+z.{digits}f}".replace("-", "−")


def format_with_interval(
    value: float, low: float | None, high: float | None, metric: str, digits: int
) -> str:
    """Write `+0.52 [+0.11, +0.93]`, or `+0.52` if there is no interval."""
    text = format_signed_metric(value, metric, digits)
    if low is None or high is None:
        return text
    low_end, high_end = (format_signed_metric(end, metric, digits) for end in (low, high))
    return f"{text} [{low_end}, {high_end}]"
