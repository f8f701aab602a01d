"""On which classes a study's trials are compared and read, by the protocol of their split."""

from __future__ import annotations

from ablate.plan.plan import Plan
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName
from trainables.trial import TrialConfig


def check_objective(plan: Plan, config: TrialConfig, place: str) -> None:
    """A trial is compared by validation classes, and by test classes only in the papers' protocol.

    Args:
        place: `studies.<name>`.

    Raises:
        ConfigError: it is not.
    """
    paper = config.data.split.protocol == "paper"
    own = plan.spec.studies[place.partition(".")[2]].objectives
    asked = {f"{place}.objectives.{i}": each.metric for i, each in enumerate(own)}
    for where, metric in asked.items() or [("objective", plan.spec.objective)]:
        if paper != (MetricName.parse(metric).split == "test"):
            split, expected = (
                ("test", "a test metric under") if paper else ("val", "a val metric unless")
            )
            key = "objective" if where == "objective" else "metric"
            default = key == "objective" and "objective" not in plan.spec.model_fields_set
            note = " (the default)" if default else ""
            raise ConfigError(
                plan.loaded.source.locate(where),
                f"{metric!r}{note} for {place}",
                f"{expected} data.split.protocol: paper",
                f"Write `{key}: {MetricName.parse(metric).on(split)}`, or change the protocol",
            )


def check_read(plan: Plan, config: TrialConfig, place: str) -> None:
    """Without validation classes nothing is read of them."""
    name = place.partition(".")[2]
    if config.data.split.protocol == "paper" and "val" in plan.evaluate(name):
        raise ConfigError(
            plan.loaded.source.locate(f"{place}.evaluate"),
            "'val'",
            "test alone under data.split.protocol: paper, which trains on the validation classes",
            "Write `evaluate: [test]`, or change the protocol",
        )
