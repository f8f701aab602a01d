"""Which classes a sweep selects on, where the command line says another protocol than the spec."""

from __future__ import annotations

from dataclasses import replace

from ablate.spec.loaded import LoadedSpec
from ablate.values.layers import Layer, Stack
from ablate.values.paths import leaves
from trainables.evaluation.metric_name import MetricName


def held_out(loaded: LoadedSpec, top: Layer) -> LoadedSpec:
    """The spec with its objective on validation, if `--set data.split.protocol=held_out` takes the
    test classes from one that selects by them, as the papers do. The other way is no option's to
    say: whoever wants to select by test classes writes it in the spec."""
    objective = MetricName.parse(loaded.spec.objective)
    given = leaves(Stack([top]).merged)
    if given.get("data.split.protocol") != "held_out" or objective.split != "test":
        return loaded
    moved = str(objective.on("val"))
    return replace(loaded, spec=loaded.spec.model_copy(update={"objective": moved}))
