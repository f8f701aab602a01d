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
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from trainables.errors import ConfigError


def check(study: Mapping[str, Any], **spec: Any) -> StudyBase:
    """Make all checks of a design; return the study as it was read.

    Args:
        study: as a spec has it. spec: what else the spec says, as `trial={"method": {"name":
            "ddml"}}`.
    """
    plan = _build_plan(study, **spec)
    design, again = plan.spec.studies["studied"], _build_plan(study, **spec).spec.studies["studied"]
    # the same points each time, as many as it says, each distinct
    if design.is_fixed:
        assert design.all_points == again.all_points, "listed again they are others"
        assert len(design.all_points) == design.size > 0, "as many as `size` says, and not none"
        names = {point.cell for point in design.all_points}
        assert len(names) == design.size, "two cells of one name"
        coords = {repr(sorted(point.coords.items())) for point in design.all_points}
        assert len(coords) == design.size, "two cells at the same coordinates"
    else:
        assert not design.all_points, "a design whose cells a sampler proposes lists some"
    # each is a trial; cells around the best of another study are known once that has results
    for number, point in enumerate(() if design.around else design.all_points):
        for cell in plan.build_cells("studied", point, number, ()):
            assert cell.error is None, f"{point.cell}: {cell.error}"
            assert cell.coords == point.coords
    # an unknown option is refused in a line that names it
    try:
        _build_plan({**study, "no_such_option": 1}, **spec)
    except ConfigError as error:
        assert "no_such_option" in str(error), f"not told by its name: {error}"
        assert "\n" not in str(error)
    else:
        raise AssertionError("an unknown option is taken")
    return design


def _build_plan(study: Mapping[str, Any], **spec: Any) -> Plan:
    return build_checked_plan(
        read_spec({"name": "studied", "studies": {"studied": dict(study)}, **spec}),
        Overrides(),
        lambda data, _: f"unread-{data.name}",  # no image is read for a plan's sake
        Path("unused"),
    )
