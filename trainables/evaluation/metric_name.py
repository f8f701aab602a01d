"""Names of metrics with their split, as in `val/map_at_r`."""

from typing import NamedTuple


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
