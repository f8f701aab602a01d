"""How metrics and coordinates are called and written for readers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """How a metric is shown.

    label: what readers call it. unit: "%" of a share in [0, 1] that is shown in per cent, else "".
    direction: whether more of it is better or less.
    """

    label: str
    unit: Literal["%", ""] = "%"
    direction: Literal["maximize", "minimize"] = "maximize"


# Label, unit and direction of every metric stand here, and nowhere else. DVML prints the KS p-value
# and its deviation in per cent; NIR's Table 3 and DVML's Table 4 want less of four of them.
METRICS = {
    "map_at_r": Metric("MAP@R"),
    "r_precision": Metric("R-Precision"),
    "nmi": Metric("NMI"),
    "ami": Metric("AMI"),
    "f1": Metric("F1"),
    "map_at_1000": Metric("mAP@1000"),
    "map_at_1000_of_found": Metric("mAP@1000 (of R)"),
    "density": Metric("π_density", ""),
    "density_code": Metric("π_density (public code)", ""),
    "spectrum": Metric("ρ", "", "minimize"),
    "uniformity": Metric("G₂", "", "minimize"),
    "concentration": Metric("σ²_κ", ""),
    "gaussian_p": Metric("KS p-value"),
    "gaussian_p_deviation": Metric("KS p-value, deviation"),
    "relative_deviation": Metric("relative deviation", direction="minimize"),
    "top_1_accuracy": Metric("top-1 accuracy"),
    "top_5_accuracy": Metric("top-5 accuracy"),
}
RECALL = re.compile(r"recall_at_(\d+)")
SPLITS = {
    "val": "validation",
    "test": "test",
    "train": "training",
    "best": "best so far",
    "ensemble": "test, ensemble of folds",
}
GREEK = {
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ"},
    **{"lambda": "λ", "omega": "ω", "epsilon": "ε", "tau": "τ"},
}


def metric_of(name: str) -> Metric:
    """Return how `test/recall_at_1` is shown.

    A metric of another package that declares nothing, or one that a method measures, is shown as it
    is: by its name, without a unit, more being better.
    """
    last = name.rsplit("/", 1)[-1]
    if recall := RECALL.fullmatch(last):
        return Metric(f"Recall@{recall[1]}")
    return METRICS.get(last) or Metric(last.replace("_", " "), "")


def declare_metrics(declared: Mapping[str, Mapping[str, Any]]) -> None:
    """Take over how metrics of other packages are shown, as a sweep's document says of them.

    Args:
        declared: name → some of label, unit and direction.
    """
    for name, fields in declared.items():
        METRICS.setdefault(name, Metric(**{"label": name.replace("_", " "), "unit": "", **fields}))


def is_share(metric: str) -> bool:
    """Tell whether a metric of a split is shown in per cent."""
    return metric.partition("/")[0] in SPLITS and metric_of(metric).unit == "%"


def scale(metric: str) -> float:
    """Return what values of a metric are times when they are shown."""
    return 100.0 if is_share(metric) else 1.0


def lower_is_better(metric: str) -> bool:
    """Tell whether less of a metric is better."""
    return metric_of(metric).direction == "minimize"


def metric_name(metric: str) -> str:
    """Return `Recall@1` for `test/recall_at_1`."""
    return metric_of(metric).label


def metric_label(metric: str) -> str:
    """Return `Recall@1, test (%)` for `test/recall_at_1`, `ρ ↓, test` for `test/spectrum`: the
    arrow where less is better."""
    split, _, rest = metric.partition("/")
    unit = " (%)" if is_share(metric) else ""
    arrow = " ↓" if lower_is_better(metric) else ""
    return f"{metric_name(metric)}{arrow}, {SPLITS.get(split, split)}{unit}" if rest else metric


def difference_label(metric: str) -> str:
    """Return `Recall@1, test, in points`, of differences of `test/recall_at_1`."""
    points = ", in points" if is_share(metric) else ""
    return f"{metric_label(metric).removesuffix(' (%)')}{points}"


def coordinate_name(path: str) -> str:
    """Return `α` for `method.alpha`; a path without a Greek name keeps its last two parts."""
    parts = path.split(".")
    return GREEK.get(parts[-1], ".".join(parts[-2:]))


WORDS = re.compile(rf"\b({'|'.join(GREEK)})\b", re.IGNORECASE)


def greek(text: str) -> str:
    """Write names of Greek letters as letters: `Fig. 4a (alpha = 1)` → `Fig. 4a (α = 1)`."""
    return WORDS.sub(lambda found: GREEK[found[1].lower()], text)


def coordinate_names(paths: Sequence[str]) -> list[str]:
    """Return each `coordinate_name`; where two are alike, with what stands before: `method.α`."""
    short = [coordinate_name(path) for path in paths]
    return [
        name if short.count(name) == 1 else greek(path)
        for name, path in zip(short, paths, strict=True)
    ]


def number(value: float, digits: int) -> str:
    """Write a number with fixed digits; minus as a true minus sign, never `-0.00`."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def p_text(p: float | None) -> str:
    """Write p with three digits, or `<0.001`; empty without a test."""
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float) -> str:
    """Write p in a sentence: `p = 0.012`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def level(value: Any) -> str:
    """Write a coordinate's value: 1e-05 → `1e-5`, a whole component → `arcface(margin=0.5)`."""
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
    """Write the levels of one axis: powers of ten as such (mathtext) where any is far from one."""
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
    """Turn a text into a file name and HTML id: lower case, digits and underscores."""
    kept = "".join(c if c.isascii() and c.isalnum() else "_" for c in text.lower())
    return "_".join(part for part in kept.split("_") if part) or "x"


def signed(value: float, metric: str, digits: int) -> str:
    """Write a difference with its sign, in the unit in which the metric is shown."""
    return with_sign(value * scale(metric), digits)


def with_sign(value: float, digits: int) -> str:
    """Write a number with its sign, plus too."""
    text = number(value, digits)
    return text if text.startswith("−") else f"+{text}"


def with_interval(
    value: float, low: float | None, high: float | None, metric: str, digits: int
) -> str:
    """Write `+0.52 [+0.11, +0.93]`; without an interval where there is none."""
    if low is None or high is None:
        return signed(value, metric, digits)
    ends = f"{signed(low, metric, digits)}, {signed(high, metric, digits)}"
    return f"{signed(value, metric, digits)} [{ends}]"
