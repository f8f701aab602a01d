"""What a report will show of a plan besides its cells: whether curves can be drawn, and which
combinations are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ablate.designs.parts import Point
from ablate.designs.study import Study
from ablate.plan.resolve import MISFIT, Locate, resolve
from ablate.values.layers import Stack
from reports.recipe import Curves
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName
from trainables.evaluation.tasks import TASKS

LOOKED_AT = 500  # combinations of a study

Studies = Mapping[str, Study]
Layers = Callable[[str, Point | None, Sequence[Mapping[str, Any]]], Stack]


def check_curves(
    curves: Iterable[Curves], studies: Studies, layers: Layers, locate: Locate
) -> None:
    """Raise for a curve of the training classes of trials that do not look at them.

    Raises:
        ConfigError: its path is the place in the spec.
    """
    each_epoch = {metric for task in TASKS.values() for metric in task.per_epoch}
    for i, drawn in enumerate(curves):
        split, last = MetricName.parse(drawn.metric)
        if split != "train" or last not in each_epoch:
            continue
        for name in drawn.studies:
            for point in studies[name].representatives():
                selection = layers(name, point, ()).merged.get("selection", {})
                if not selection.get("train_curve"):
                    raise ConfigError(
                        locate(f"report.curves.{i}.metric"),
                        f"{drawn.metric!r}, which trials of {name} do not look at in each epoch",
                        "a metric of every epoch",
                        "Set `selection: {train_curve: true}` in their trial, or draw another",
                    )


def refused(study: Study, name: str, layers: Layers) -> Iterator[tuple[Point, str]]:
    """The combinations that a study leaves out because no trial could have them, with the rule
    between its parts that refuses them; not those left out by choice."""
    for point in itertools.islice(study.left_out(), LOOKED_AT):
        try:
            resolve(layers(name, point, ()), str)
        except ConfigError as fault:
            if fault.found == MISFIT:
                yield point, fault.expected


def refusals(studies: Studies, layers: Layers) -> dict[str, list[dict[str, Any]]]:
    """Study → its refused combinations as a report reads them: cell, coordinates, reason."""
    found = {name: [*refused(study, name, layers)] for name, study in studies.items()}
    return {
        name: [{"cell": p.cell, "coords": p.coords, "reason": reason} for p, reason in pairs]
        for name, pairs in found.items()
        if pairs
    }
