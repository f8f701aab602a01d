"""That what studies compare their cells by is read of their trials."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.designs.base import COMPARED
from ablate.designs.parts import OF
from ablate.designs.study import Study
from ablate.values.errors import nearest_metric, some_metrics
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName


def check_objectives(
    studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Raise for an objective, or a `by`, that no trial of the study can have.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for name, study in studies.items():
        for i, wanted in enumerate(study.objectives):
            _check(f"studies.{name}.objectives.{i}.metric", wanted.metric, name, study, metrics)
        for place, around in study.references():
            if around.by is None:
                continue
            where = f"studies.{name}.by" if place == OF else f"studies.{name}.{place}.by"
            check_compared(where, around.by)
            known = _comparable(studies[around.best_of], metrics, objective)
            if around.by not in known:
                raise ConfigError(
                    where,
                    repr(around.by),
                    f"a metric of {around.best_of}: {some_metrics(around.by, known)}",
                    nearest_metric(around.by, known),
                )


def check_compared(place: str, metric: str) -> None:
    """Raise for a metric of the classes that trials train on, by which nothing is compared.

    Raises:
        ConfigError: its path is `place`.
    """
    split, last = MetricName.parse(metric)
    if split == "train" and last:
        raise ConfigError(
            place,
            f"{metric!r}, of the classes that trials train on",
            "a metric of classes held out from training: search optimises validation",
            f"Write val/{last}; with `evaluate: [val, train]` tables may show {metric} beside it",
        )


def _comparable(study: Study, metrics: tuple[str, ...], objective: str) -> list[str]:
    """Metrics by which a study's cells may be compared: its objectives, and what is read."""
    own = [objective.metric for objective in study.objectives]
    splits = {MetricName.parse(metric).split for metric in study.compared_by(objective)}
    splits |= {*study.evaluate}
    return [*own, *(m for m in metrics if MetricName.parse(m).split in splits and m not in own)]


def _check(place: str, metric: str, name: str, study: Study, metrics: tuple[str, ...]) -> None:
    check_compared(place, metric)
    own = (MetricName(split, more) for split in COMPARED for more in study.metrics)
    known = [*metrics, *map(str, own)]
    if metric not in known:
        remedy = nearest_metric(metric, known)
        raise ConfigError(
            place,
            repr(metric),
            some_metrics(metric, known),
            f"{remedy}; others must be listed in studies.{name}.metrics",
        )
