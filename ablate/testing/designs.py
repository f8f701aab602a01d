"""What every design that lists its cells must do:

    from ablate.testing import designs

    def test_my_design() -> None:
        designs.check({"design": "mine", "path": "embedding.dim", "levels": [8, 16]})

Its cells are a function of its options: as many as it says, each with a name of its own, set at
paths that a trial has, to values that a trial can have. An unknown option is refused. A design that
grows by results is held to what does not ask for any: its options and its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.designs.base import StudyBase
from ablate.plan.checks import checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from trainables.errors import ConfigError

Given = Mapping[str, Any]  # a study, as a spec has it
NO_OPTION = "no_such_option"


def check(study: Given, **spec: Any) -> StudyBase:
    """Make all checks of a design; return the study as it was read.

    Args:
        spec: what else the spec says, as `trial={"method": {"name": "ddml"}}`.
    """
    lists_alike(study, **spec)
    its_cells_can_be(study, **spec)
    refuses_an_unknown_option(study, **spec)
    return _plan(study, **spec).spec.studies["studied"]


def lists_alike(study: Given, **spec: Any) -> None:
    """Check for the same points each time, as many as it says, each distinct."""
    first, again = (_plan(study, **spec).spec.studies["studied"] for _ in range(2))
    if not first.fixed:
        assert not first.listed, "a design whose cells a sampler proposes lists some"
        return
    assert first.listed == again.listed, "listed again they are others"
    assert len(first.listed) == first.size > 0, "as many as `size` says, and not none"
    names = {point.cell for point in first.listed}
    assert len(names) == first.size, "two cells of one name"
    coords = {repr(sorted(point.coords.items())) for point in first.listed}
    assert len(coords) == first.size, "two cells at the same coordinates"


def its_cells_can_be(study: Given, **spec: Any) -> None:
    """Check that each is a trial, and has the values that its point sets."""
    plan = _plan(study, **spec)
    design = plan.spec.studies["studied"]
    # cells around the best of another study are known once that has results
    for number, point in enumerate(() if design.around else design.listed):
        for cell in plan.cells("studied", point, number, ()):
            assert cell.error is None, f"{point.cell}: {cell.error}"
            assert cell.coords == point.coords


def refuses_an_unknown_option(study: Given, **spec: Any) -> None:
    """Check for a line that names its place."""
    try:
        _plan({**study, NO_OPTION: 1}, **spec)
    except ConfigError as error:
        assert NO_OPTION in str(error), f"not told by its name: {error}"
        assert "\n" not in str(error)
    else:
        raise AssertionError("an unknown option is taken")


def _plan(study: Given, **spec: Any) -> Plan:
    return checked_plan(
        read_spec({"name": "studied", "studies": {"studied": dict(study)}, **spec}),
        Overrides(),
        lambda data, _: f"unread-{data.name}",  # no image is read for a plan's sake
        Path("unused"),
    )
