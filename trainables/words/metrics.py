"""Metrics: names, labels, units, directions and uses. Every list of metrics follows from here.

A metric that this table does not have (a user's, or one in a file of its own) declares unit,
direction and label where it is registered (`trainables.evaluation.metric`); `declare_metrics` adds
it for readers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class MetricName(NamedTuple):
    """Name a metric of a split, as in `val/map_at_r`.

    Splits are "val", "test", "train" and "ensemble", in the log of an epoch also others. `metric`
    may contain further slashes there; it is empty for a name without a slash.
    """

    split: str
    metric: str

    @classmethod
    def parse(cls, text: str) -> "MetricName":
        """Split a name at its first slash."""
        split, _, metric = text.partition("/")
        return cls(split, metric)

    def with_split(self, split: str) -> "MetricName":
        """Return the name of the same metric on another split."""
        return MetricName(split, self.metric)

    def __str__(self) -> str:
        return f"{self.split}/{self.metric}" if self.metric else self.split


SHARP_SMALLEST = 0.3  # δ of means over images


@dataclass(frozen=True)
class MetricFacts:
    """How a metric is shown.

    Attributes:
        label: name for readers.
        unit: "%" for a share in [0, 1] that is shown in per cent, else "".
        direction: whether higher or lower is better.
        smallest: δ, the smallest difference of interest by default, in points; for a number without
            unit 0. For whole networks a spec states rather 1.
    """

    label: str
    unit: Literal["%", ""] = "%"
    direction: Literal["maximize", "minimize"] = "maximize"
    smallest: float = 0.5


# DVML prints the KS p-value and its deviation in per cent; NIR's Table 3 and DVML's Table 4 want
# less of the metrics to minimize.
METRICS = {
    "map_at_r": MetricFacts("MAP@R", smallest=SHARP_SMALLEST),
    "r_precision": MetricFacts("R-Precision", smallest=SHARP_SMALLEST),
    "nmi": MetricFacts("NMI"),
    "ami": MetricFacts("AMI"),
    "f1": MetricFacts("F1"),
    "map_at_1000": MetricFacts("mAP@1000", smallest=SHARP_SMALLEST),
    "map_at_1000_of_found": MetricFacts("mAP@1000 (of R)", smallest=SHARP_SMALLEST),
    "map_at_100_of_found": MetricFacts("mAP@100 (of R)", smallest=SHARP_SMALLEST),
    "map": MetricFacts("mAP", smallest=SHARP_SMALLEST),
    "map_with_query": MetricFacts("mAP (with the query)", smallest=SHARP_SMALLEST),
    "density": MetricFacts("π_density", ""),
    "density_code": MetricFacts("π_density (public code)", ""),
    "spectrum": MetricFacts("ρ", "", "minimize"),
    "uniformity": MetricFacts("G₂", "", "minimize"),
    "concentration": MetricFacts("σ²_κ", ""),
    "gaussian_p": MetricFacts("KS p-value"),
    "gaussian_p_deviation": MetricFacts("KS p-value, deviation"),
    "relative_deviation": MetricFacts("relative deviation", direction="minimize"),
    "top_1_accuracy": MetricFacts("top-1 accuracy"),
    "top_5_accuracy": MetricFacts("top-5 accuracy"),
}
# means over images, which vary less
SHARP = tuple(name for name, facts in METRICS.items() if facts.smallest == SHARP_SMALLEST)
HALF_WIDTH = 0.8  # of δ: a half-width with which a true 0 is mostly seen as no difference
RECALL = re.compile(r"recall_at_(\d+)")
SPLITS = {
    "val": "validation",
    "test": "test",
    "train": "training",
    "best": "best so far",
    "ensemble": "test, ensemble of folds",
}
# Computed after each epoch, and at the end; these are defined for every split with a pair, even for
# collapsed embeddings.
PER_EPOCH = (*(f"recall_at_{k}" for k in (1, 2, 4, 8)), "r_precision", "map_at_r")
AT_END = (
    *(*PER_EPOCH, "recall_at_10", "recall_at_100", "recall_at_1000", "map_at_1000"),
    *("nmi", "ami", "f1"),
)
# of a classifier, after each epoch and at the end
ACCURACIES = ("top_1_accuracy", "top_5_accuracy")
# may choose the best epoch of a retrieval trial, the default first; ACCURACIES choose the others'
SELECTING = ("map_at_r", "r_precision", "recall_at_1")
BY_CLASS = ("recall_at_1", "map_at_r")  # whose means by class a trial's result has


def find_metric(name: str) -> MetricFacts:
    """Return label, unit and direction of a metric such as `test/recall_at_1`.

    A metric that another package has and does not declare is shown by its name, without a unit, and
    higher values of the metric count as better.
    """
    last = name.rsplit("/", 1)[-1]
    if recall := RECALL.fullmatch(last):
        return MetricFacts(f"Recall@{recall[1]}")
    return METRICS.get(last) or MetricFacts(last.replace("_", " "), "")


def is_listed(name: str) -> bool:
    """Return whether the table has a metric, so that nobody needs to declare it."""
    return name in METRICS or RECALL.fullmatch(name) is not None


def declare_metrics(declared: Mapping[str, Mapping[str, Any]]) -> None:
    """Register metrics of other packages: name → some of label, unit and direction."""
    for name, fields in declared.items():
        shown = {"label": name.replace("_", " "), "unit": "", **fields}
        METRICS.setdefault(name, MetricFacts(**shown))


def is_share(metric: str) -> bool:
    """Return whether a metric is shown in per cent."""
    return metric.partition("/")[0] in SPLITS and find_metric(metric).unit == "%"


def choose_smallest_effect(stated: Mapping[str, float], metric: str) -> float:
    """Return a metric's δ in the unit shown: as `report.smallest` states it, else the default."""
    name = metric.rpartition("/")[2]
    return stated.get(name, find_metric(metric).smallest if is_share(metric) else 0.0)


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
