from __future__ import annotations

import pytest

from trainables.evaluation.metric_name import MetricName


@pytest.mark.parametrize(
    ("text", "split", "metric"),
    [
        ("val/map_at_r", "val", "map_at_r"),
        ("ensemble/recall_at_1", "ensemble", "recall_at_1"),
        ("observed/nll/nonfinite", "observed", "nll/nonfinite"),
        ("map_at_r", "map_at_r", ""),
    ],
)
def test_there_and_back(text: str, split: str, metric: str) -> None:
    name = MetricName.parse(text)
    assert name == (split, metric)
    assert str(name) == f"{name}" == text
    assert str(MetricName.parse("val/nmi").with_split("test")) == "test/nmi"
