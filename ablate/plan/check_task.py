"""That what studies are compared by, and reports show, is read in the task of their trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablate.plan.plan import Plan
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName
from trainables.evaluation.tasks import TASKS, Task


def check_asked(plan: Plan, place: str, task: Task) -> None:
    """The objectives of a study, and what it reads besides.

    Args:
        place: `studies.<name>`. task: of its trials.

    Raises:
        ConfigError: a metric of another task.
    """
    study = plan.spec.studies[place.partition(".")[2]]
    own = study.objectives
    for i, objective in enumerate(own):
        _refuse(plan, f"{place}.objectives.{i}.metric", objective.metric, place, task)
    if not own:
        _refuse(plan, "objective", plan.spec.objective, place, task)
    for i, metric in enumerate(study.metrics):
        _refuse(plan, f"{place}.metrics.{i}", f"/{metric}", place, task)


def check_shown(plan: Plan, tasks: Mapping[str, Task]) -> None:
    """The metrics of a report's tables and figures.

    Args:
        tasks: of the trials of each study.

    Raises:
        ConfigError: a metric of another task than the study's.
    """
    for place, metric, name in _shown(plan):
        _refuse(plan, place, metric, f"studies.{name}", tasks[name])


def _shown(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """(place, metric, study) of each."""
    report = plan.spec.report
    for i, table in enumerate(report.tables):
        for j, metric in enumerate(table.metrics):
            yield f"report.tables.{i}.metrics.{j}", metric, table.study
    for i, heatmap in enumerate(report.heatmaps):
        yield f"report.heatmaps.{i}.metric", heatmap.metric, heatmap.study
    drawn = [
        *((f"curves.{i}", each.studies, each.metric) for i, each in enumerate(report.curves)),
        *(
            (f"factor_curves.{i}", each.studies, each.metric)
            for i, each in enumerate(report.factor_curves)
        ),
        *((f"figures.{i}", each.studies, each.metric) for i, each in enumerate(report.figures)),
    ]
    for place, studies, metric in drawn:
        for name in studies:
            yield f"report.{place}.metric", metric, name


def _refuse(plan: Plan, place: str, metric: str, study: str, task: Task) -> None:
    """What no task reads, as what methods measure, is for others to judge."""
    split, last = MetricName.parse(metric)
    if task.reads(last) or not any(other.reads(last) for other in TASKS.values()):
        return
    default = place == "objective" and "objective" not in plan.spec.model_fields_set
    written = [str(MetricName(split, each)) if split else each for each in task.metrics]
    raise ConfigError(
        plan.loaded.source.locate(place),
        f"{(metric if split else last)!r}{' (the default)' if default else ''} for {study}",
        f"a metric of task: {task.name}, as {', '.join(written[:3])}",
        f"Write {written[0]}" if split else "Remove it",
    )
