"""What `ablate.testing.designs` asks, of the designs here and of some that break it."""

from __future__ import annotations

import inspect
import itertools
from typing import Any, ClassVar, Literal

import pytest

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.parts import Point
from ablate.testing import designs

RATES = {"optimizer.lr": [1e-4, 1e-3]}
SIZES = {"embedding.dim": [8, 16, 32]}
PARTS = {"one": {"method.alpha": 0}, "two": {"method.beta": 0}}
STUDIES: dict[str, dict[str, Any]] = {
    "search": {"trials": 4, "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2}}},
    "grid": {"grid": RATES | SIZES},
    "one_factor": {"factors": RATES | SIZES},
    "factorial": {"factors": RATES | SIZES},
    "components": {"components": PARTS},
    "leave_one_out": {"components": PARTS},
    "add_one": {"components": PARTS},
    "compare": {"variants": {"a": {}, "b": {"trial": {"method.alpha": 0}}}},
}


def test_each_design_is_named() -> None:
    ours = {name for name in DESIGNS if DESIGNS[name].__module__.startswith("ablate.")}
    assert ours == set(STUDIES) | {"promote"}, "promote is of another study"


@pytest.mark.parametrize("name", STUDIES)
def test_designs_here(name: str) -> None:
    study = designs.check({"design": name, **STUDIES[name]}, trial={"method": {"name": "ddml"}})
    assert study.is_fixed == (name != "search")


class Broken(StudyBase):
    design: Literal["broken"]

    calls: ClassVar[Any] = itertools.count()

    def points(self) -> list[Point]:
        return [Point(f"c{i}", {"n": i}, {"embedding.dim": 8 + i}, "design") for i in range(2)]


class Twice(Broken):
    def points(self) -> list[Point]:
        return [super().points()[0]] * 2


def test_a_design_has_few_hooks() -> None:
    """What a class here defines of the base's is one of them."""
    texts = {name: str(value.__doc__) for name, value in vars(StudyBase).items()}
    hooks = ["sampling", "references", "link", "points", "left_out", "build_identity", "notes"]
    classes = {cls for name in DESIGNS for cls in DESIGNS[name].__mro__ if cls is not StudyBase}
    overridden = {
        name
        for cls in classes
        if issubclass(cls, StudyBase)
        for name, value in vars(cls).items()
        if inspect.isfunction(value) and name in texts and not name.startswith("_")
    }
    assert overridden <= {*hooks}


def test_two_cells_of_one_name_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by the class itself: a test adds no design to those that the schema lists."""
    plan = designs._build_plan

    def with_twice(study: dict[str, Any], **spec: Any) -> Any:
        options = {key: value for key, value in study.items() if key != "design"}
        made = plan({**STUDIES["grid"], "design": "grid", **options}, **spec)
        studies = {"studied": Twice.model_validate({**study, "design": "broken"})}
        object.__setattr__(made, "spec", made.spec.model_copy(update={"studies": studies}))
        return made

    monkeypatch.setattr(designs, "_build_plan", with_twice)
    with pytest.raises(AssertionError, match="two cells have the same name"):
        designs.check({"design": "broken"})
