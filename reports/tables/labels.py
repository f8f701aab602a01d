"""Format metrics, coordinates and numbers for readers."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reports.recipe import Table, to_level_name


@dataclass(frozen=True)
class Metric:
    """How a metric is shown.

    Attributes:
        label: name for readers.
        unit: "%" for a share in [0, 1] that is shown in per cent, else "".
        direction: whether higher or lower is better.
    """

    label: str
    unit: Literal["%", ""] = "%"
    direction: Literal["maximize", "minimize"] = "maximize"


# Label, unit and direction of every metric stand here, and nowhere else. DVML prints the KS p-value
# and its deviation in per cent; NIR's Table 3 and DVML's Table 4 want less of the marked ones.
METRICS = {
    "map_at_r": Metric("MAP@R"),
    "r_precision": Metric("R-Precision"),
    "nmi": Metric("NMI"),
    "ami": Metric("AMI"),
    "f1": Metric("F1"),
    "map_at_1000": Metric("mAP@1000"),
    "map_at_1000_of_found": Metric("mAP@1000 (of R)"),
    "map_at_100_of_found": Metric("mAP@100 (of R)"),
    "map": Metric("mAP"),
    "map_with_query": Metric("mAP (with the query)"),
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
SHARP = (  # means over images
    *("map_at_r", "r_precision", "map", "map_with_query"),
    *("map_at_1000", "map_at_1000_of_found", "map_at_100_of_found"),
)
SHARP_SMALLEST, SMALLEST = 0.3, 0.5  # δ in points, by default; for whole networks rather 1
HALF_WIDTH = 0.8  # of δ: a half-width with which a true 0 is mostly seen as no difference
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


def find_metric(name: str) -> Metric:
    """Return label, unit and direction of a metric such as `test/recall_at_1`.

    A metric that another package has and does not declare is shown by its name, without a unit, and
    higher values of the metric count as better.
    """
    last = name.rsplit("/", 1)[-1]
    if recall := RECALL.fullmatch(last):
        return Metric(f"Recall@{recall[1]}")
    return METRICS.get(last) or Metric(last.replace("_", " "), "")


def declare_metrics(declared: Mapping[str, Mapping[str, Any]]) -> None:
    """Register metrics of other packages: name → some of label, unit and direction."""
    for name, fields in declared.items():
        METRICS.setdefault(name, Metric(**{"label": name.replace("_", " "), "unit": "", **fields}))


def is_share(metric: str) -> bool:
    """Return whether a metric is shown in per cent."""
    return metric.partition("/")[0] in SPLITS and find_metric(metric).unit == "%"


def choose_smallest_effect(stated: Mapping[str, float], metric: str) -> float:
    """Return a metric's δ in the unit shown: as `report.smallest` states it, else the default."""
    name = metric.rpartition("/")[2]
    default = (SHARP_SMALLEST if name in SHARP else SMALLEST) if is_share(metric) else 0.0
    return stated.get(name, default)


def display_scale(metric: str) -> float:
    """Return the factor from a metric to the shown number."""
    return 100.0 if is_share(metric) else 1.0


def is_lower_better(metric: str) -> bool:
    """Return whether lower values of a metric are better."""
    return find_metric(metric).direction == "minimize"


def format_metric_name(metric: str) -> str:
    """Return `Recall@1` for `test/recall_at_1`."""
    return find_metric(metric).label


def format_metric_label(metric: str) -> str:
    """Return `Recall@1, test (%)`, or `ρ ↓, test` for a metric whose lower values are better."""
    split, _, name = metric.partition("/")
    unit = " (%)" if is_share(metric) else ""
    arrow = " ↓" if is_lower_better(metric) else ""
    label = f"{format_metric_name(metric)}{arrow}, {SPLITS.get(split, split)}{unit}"
    return label if name else metric  # no name: the metric has no split before a slash


def format_difference_label(metric: str) -> str:
    """Return `Recall@1, test, in points`, the label of differences."""
    points = ", in points" if is_share(metric) else ""
    return f"{format_metric_label(metric).removesuffix(' (%)')}{points}"


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
