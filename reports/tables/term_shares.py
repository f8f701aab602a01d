"""Say how strong the gradient of each loss term was beside that of the metric term."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from reports.frame import FIRST_RATIO, LARGEST_RATIO, RATIO, Frame
from reports.tables.labels import format_ratio

INACTIVE, DROWNING = 1e-4, 10.0  # trials warn of ratios beyond these in their logs, too
HEADER = "terms' share"
NOTE = (
    "Terms' share: the gradient of each loss term over that of the metric term, at the first step "
    "and, after the arrow, in the last epoch; the median over runs. Below 1e-4 a term does nothing."
)


class TermShare(NamedTuple):
    """Hold the ratio of a term's gradient to the metric term's, in the median over runs."""

    first: float
    last: float

    @property
    def is_inactive(self) -> bool:
        return max(self) < INACTIVE


def collect_term_shares(frame: Frame, run_ids: Sequence[str]) -> dict[str, TermShare]:
    """Return term → its share of the runs that logged one.

    Runs of versions that logged no first ratio have that of the last epoch in its place.
    """
    shares: dict[str, list[tuple[float, float]]] = {}
    trials = frame.trials[frame.trials["run_id"].isin(run_ids)]
    for ratios in trials["ratios"]:
        for name in ratios:
            if name.endswith(LARGEST_RATIO):
                last = ratios[name.removesuffix(LARGEST_RATIO) + RATIO]
                first = ratios.get(name.removesuffix(LARGEST_RATIO) + FIRST_RATIO, last)
                term = name.removeprefix("observed/").removesuffix(LARGEST_RATIO)
                shares.setdefault(term, []).append((first, last))
    return {
        term: TermShare(*map(median, zip(*values, strict=True))) for term, values in shares.items()
    }


def format_term_shares(shares: Mapping[str, TermShare]) -> str:
    """Write `kl 12,000 → 300, generated 0.2`; empty without any."""
    texts = []
    for term, share in shares.items():
        first, last = map(format_ratio, share)
        texts.append(f"{term} {first}" + (f" → {last}" if last != first else ""))
    return ", ".join(texts)


def judge_terms_of_row(row: Mapping[str, TermShare], base: Mapping[str, TermShare]) -> str:
    """Say if the terms that a row has and its baseline lacks are all inactive, or drown the metric.

    Terms whose names begin with "metric" are the base loss of another part of the method.
    """
    own = {
        term: share
        for term, share in row.items()
        if term not in base and not term.startswith("metric")
    }
    if own and all(share.is_inactive for share in own.values()):
        largest = format_ratio(max(max(share) for share in own.values()))
        return (
            f"its terms are inactive ({largest} of the metric's gradient): this row tests the rest "
            "of the method"
        )
    drowning = {term: share.first for term, share in own.items() if share.first > DROWNING}
    return "; ".join(
        f"its term {term} drowns the metric ({format_ratio(first)} times its gradient at first)"
        for term, first in drowning.items()
    )
