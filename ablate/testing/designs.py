"""Check that a design satisfies its interface:

    from ablate.testing import designs

    def test_my_design() -> None:
        designs.check({"design": "mine", "path": "embedding.dim", "levels": [8, 16]})

Its cells depend only on its options. Their number is `size`, their names are distinct, and their
values are valid in a trial. An unknown option is refused. Of a design that grows by results, only
options and plan are checked.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.designs.base import StudyBase
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from trainables.words.errors import ConfigError


def check(study: Mapping[str, Any], **spec: Any) -> StudyBase:
    """Run all checks of a design on a study of this design; return the study as it was read.

    `spec` are other keys of the spec, for example `trial={"method": {"name": "ddml"}}`.
    """
    plan = _build_plan(study, **spec)
    design, again = plan.spec.studies["studied"], _build_plan(study, **spec).spec.studies["studied"]
    # check that points are reproducible, distinct and as many as `size`
    if design.is_fixed:
        assert design.all_points == again.all_points, "points() differs from call to call"
        assert len(design.all_points) == design.size > 0, "points() must return `size` points"
        names = {point.cell for point in design.all_points}
        assert len(names) == design.size, "two cells have the same name"
        coords = {repr(sorted(point.coords.items())) for point in design.all_points}
        assert len(coords) == design.size, "two cells have the same coordinates"
    else:
        assert not design.all_points, "points() must be empty if a sampler proposes the cells"
    # check the trials, unless they depend on the results of another study
    for number, point in enumerate(() if design.around else design.all_points):
        for cell in plan.build_cells("studied", point, number, ()):
            assert cell.error is None, f"{point.cell}: {cell.error}"
            assert cell.coords == point.coords
    # check that an unknown option is refused in one line
    try:
        _build_plan({**study, "no_such_option": 1}, **spec)
    except ConfigError as error:
        assert "no_such_option" in str(error), f"the error does not name the option: {error}"
        assert "\n" not in str(error)
    else:
        raise AssertionError("the design accepts an unknown option")
    return design


def _build_plan(study: Mapping[str, Any], **spec: Any) -> Plan:
    """Build and check the plan of a spec with this study alone, without reading its data."""
    return build_checked_plan(
        read_spec({"name": "studied", "studies": {"studied": dict(study)}, **spec}),
        Overrides(),
        lambda data, _: f"unread-{data.name}",  # stands for the fingerprint
        Path("unused"),
    )
