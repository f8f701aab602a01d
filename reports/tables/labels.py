"""How metrics and coordinates are called and written for readers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

PERCENT = 100.0
METRICS = {
    "map_at_r": "MAP@R",
    "r_precision": "R-Precision",
    "nmi": "NMI",
    "ami": "AMI",
    "f1": "F1",
    "map_at_1000": "mAP@1000",
    "map_at_1000_of_found": "mAP@1000 (of R)",
    "density": "π_density",
    "density_code": "π_density (public code)",
    "spectrum": "ρ",
    "uniformity": "G₂",
    "concentration": "σ²_κ",
    "gaussian_p": "KS p-value",
    "gaussian_p_deviation": "KS p-value, deviation",
    "relative_deviation": "relative deviation",
    "top_1_accuracy": "top-1 accuracy",
    "top_5_accuracy": "top-5 accuracy",
}
# Not shares: shown as they are, as the papers do. DVML prints its figures in per cent.
PLAIN = ("density", "density_code", "spectrum", "uniformity", "concentration")
# As NIR's Table 3 wants them, and DVML's Table 4.
LOWER = ("spectrum", "uniformity", "relative_deviation")
SPLITS = {
    "val": "validation",
    "test": "test",
    "train": "training",
    "best": "best so far",
    "ensemble": "test, ensemble of folds",
}
GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "lambda": "λ",
    "omega": "ω",
    "epsilon": "ε",
    "tau": "τ",
}


def is_share(metric: str) -> bool:
    """Whether a metric is shown in per cent; those are shares in [0, 1], but for deviations.

    A metric of another package, or one that a method measures, is shown as it is.
    """
    split, _, rest = metric.partition("/")
    last = rest.rsplit("/", 1)[-1]
    known = last in METRICS or re.fullmatch(r"recall_at_\d+", last) is not None
    return split in ("train", "val", "test", "best", "ensemble") and known and last not in PLAIN


def scale(metric: str) -> float:
    return PERCENT if is_share(metric) else 1.0


def lower_is_better(metric: str) -> bool:
    return metric.rsplit("/", 1)[-1] in LOWER


def metric_name(metric: str) -> str:
    """`test/recall_at_1` → `Recall@1`."""
    last = metric.rsplit("/", 1)[-1]
    if last.startswith("recall_at_"):
        return f"Recall@{last.removeprefix('recall_at_')}"
    return METRICS.get(last, last.replace("_", " "))


def metric_label(metric: str) -> str:
    """`test/recall_at_1` → `Recall@1, test (%)`; `test/spectrum` → `ρ ↓, test`, the arrow where
    less is better."""
    split, _, rest = metric.partition("/")
    unit = " (%)" if is_share(metric) else ""
    arrow = " ↓" if lower_is_better(metric) else ""
    return f"{metric_name(metric)}{arrow}, {SPLITS.get(split, split)}{unit}" if rest else metric


def coordinate_name(path: str) -> str:
    """`method.alpha` → `α`; a path without a Greek name keeps its last two parts."""
    last = path.rsplit(".", 1)[-1]
    if last in GREEK:
        return GREEK[last]
    return ".".join(path.split(".")[-2:])


WORDS = re.compile(rf"\b({'|'.join(GREEK)})\b", re.IGNORECASE)


def greek(text: str) -> str:
    """Words that are names of Greek letters as these: `Fig. 4a (alpha = 1)` → `Fig. 4a (α = 1)`."""
    return WORDS.sub(lambda found: GREEK[found[1].lower()], text)


def coordinate_names(paths: Sequence[str]) -> list[str]:
    """Each `coordinate_name`; where two would be alike, with what stands before: `method.α`."""
    short = [coordinate_name(path) for path in paths]
    return [
        name if short.count(name) == 1 else greek(path)
        for name, path in zip(short, paths, strict=True)
    ]


def number(value: float, digits: int) -> str:
    """Fixed digits; minus as a true minus sign, never `-0.00`."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def p_text(p: float | None) -> str:
    """Three digits, `<0.001`; empty without a test."""
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float) -> str:
    """In a sentence: `p = 0.012`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def level(value: Any) -> str:
    """A coordinate's value, short: 1e-05 → `1e-5`, a whole component → `arcface(margin=0.5)`."""
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        options = ", ".join(f"{key}={level(v)}" for key, v in value.items() if key != "name")
        return f"{value['name']}({options})" if options else str(value["name"])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def ticks(values: list[Any]) -> list[str]:
    """Levels of one axis: powers of ten as such (mathtext) where any is far from one."""
    powers = [_power(value) for value in values]
    if any(power is None for power in powers) or all(abs(p or 0) < 2 for p in powers):
        return [level(value) for value in values]
    return [f"$10^{{{power}}}$" for power in powers]


def _power(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    power = math.log10(value)
    return round(power) if abs(power - round(power)) < 1e-9 else None


def slug(text: str) -> str:
    """A file name and HTML id: lower case, digits and underscores."""
    kept = "".join(c if c.isascii() and c.isalnum() else "_" for c in text.lower())
    return "_".join(part for part in kept.split("_") if part) or "x"


def signed(value: float, metric: str, digits: int) -> str:
    text = number(value * scale(metric), digits)
    return text if text.startswith("−") else f"+{text}"


def with_interval(
    value: float, low: float | None, high: float | None, metric: str, digits: int
) -> str:
    """`+0.52 [+0.11, +0.93]`; without an interval where there is none."""
    if low is None or high is None:
        return signed(value, metric, digits)
    ends = f"{signed(low, metric, digits)}, {signed(high, metric, digits)}"
    return f"{signed(value, metric, digits)} [{ends}]"
