"""What a metric is called: the split it is read on, and what is read there.

val/map_at_r    →    MetricName("val", "map_at_r")    →    val/map_at_r
"""

from __future__ import annotations

from typing import NamedTuple


class MetricName(NamedTuple):
    """split: "val", "test", "train" or "ensemble"; of what epochs log also "observed" and others.
    metric: as the evaluation calls it; of what epochs log it may hold further slashes. Empty: the
    name had no slash, and nothing is called so.
    """

    split: str
    metric: str

    @classmethod
    def parse(cls, text: str) -> MetricName:
        split, _, metric = text.partition("/")
        return cls(split, metric)

    def with_split(self, split: str) -> MetricName:
        """Return the same of another split."""
        return MetricName(split, self.metric)

    def __str__(self) -> str:
        return f"{self.split}/{self.metric}" if self.metric else self.split
