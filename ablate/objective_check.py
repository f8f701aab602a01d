"""That what studies compare their cells by is read of their trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablate.compare import Compare
from ablate.designs import Study
from ablate.messages import listed
from ablate.promote import Promote
from ablate.remedies import nearest_metric
from ablate.searching import Search
from ablate.study_parts import Around
from trainables.errors import ConfigError


def check_objectives(
    studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Raise for an objective, or a `by`, that no trial of the study can have.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for name, study in studies.items():
        if isinstance(study, Search):
            for i, wanted in enumerate(study.objectives):
                _check(f"studies.{name}.objectives.{i}.metric", wanted.metric, name, study, metrics)
        for place, around, centres in arounds(study):
            if around.by is None:
                continue
            for centre in centres:
                known = _comparable(studies[centre], metrics, objective)
                if around.by not in known:
                    raise ConfigError(
                        f"studies.{name}.{place}by", repr(around.by),
                        f"a metric of {centre}: one of {listed(known)}",
                        nearest_metric(around.by, known),
                    )  # fmt: skip


def arounds(study: Study) -> Iterator[tuple[str, Around, list[str]]]:
    """Each `around`, or what a promote study is of, with the start of its place in the study and
    the studies that it names."""
    arms = [point.arm for point in study.listed] if isinstance(study, Compare) else [()]
    for around in study.around:
        yield "around.", around, sorted({around.filled(arm).best_of for arm in arms})
    if isinstance(study, Compare):
        for factor, levels in study.factors().items():
            for level, variant in levels.items():
                for around in variant.around:
                    yield f"{study.place(factor, level)}.around.", around, [around.best_of]
    if isinstance(study, Promote):
        yield "", study.ranked(), [study.of]


def _comparable(study: Study, metrics: tuple[str, ...], objective: str) -> list[str]:
    """Metrics by which a study's cells may be compared: its objectives, and what is read."""
    own = [found.metric for found in study.objectives] if isinstance(study, Search) else []
    splits = {metric.partition("/")[0] for metric in (objective, *own)} | {*study.evaluate}
    return [*own, *(m for m in metrics if m.partition("/")[0] in splits and m not in own)]


def _check(place: str, metric: str, name: str, study: Study, metrics: tuple[str, ...]) -> None:
    known = [*metrics, *(f"{split}/{more}" for split in ("val", "test") for more in study.metrics)]
    if metric not in known:
        remedy = nearest_metric(metric, known)
        raise ConfigError(
            place, repr(metric), f"one of {listed(known)}",
            f"{remedy}; others must be listed in studies.{name}.metrics",
        )  # fmt: skip
