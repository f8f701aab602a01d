"""Studies: what varies in each design, and the cells that follow from it.

A study has a centre: the layers below its own cells, into which the best values of other studies
may be taken (`around`). Fixed designs list their cells at once; a search grows by rounds
(`ablate/search.py`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ablate.messages import shown
from ablate.seeds import MAX_SEED, MAX_SEEDS
from ablate.space import Axis

MAX_CELLS = 10_000
MAX_COMPONENTS = 12


class SpecPart(BaseModel):
    """Strict about unknown keys; never changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Around(SpecPart):
    """Centre on the best cell of study `best_of`: the one with the best mean objective over its
    seeds, the earlier one on a tie. `take` names the paths taken; default: the paths
    which that study varies or has itself taken."""

    best_of: str
    take: tuple[str, ...] | None = None


Seeds = Annotated[int, Field(ge=1, le=MAX_SEEDS)] | Annotated[tuple[int, ...], Field(min_length=1)]


def seed_list(seeds: int | tuple[int, ...]) -> list[int]:
    """n → 0…n−1."""
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def check_seeds(seeds: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
    if isinstance(seeds, tuple):
        if len(set(seeds)) != len(seeds):
            raise ValueError("each seed once")
        if min(seeds) < 0 or max(seeds) > MAX_SEED:
            raise ValueError(f"seeds from 0 to {MAX_SEED}")
    return seeds


@dataclass(frozen=True)
class Point:
    """One cell of a fixed design, before its centre is known.

    values: what the cell sets, by dotted path. where: its place in the study.
    variant: the variant whose layers it needs, in a compare study.
    """

    cell: str
    coords: dict[str, Any]
    values: dict[str, Any]
    where: str
    variant: str | None = None


class StudyBase(SpecPart):
    """What all designs share.

    evaluate: the splits read of each finished trial.
    metrics: what is read of them besides the usual ones, by name (`density`); a trial that has
        finished before is evaluated again and not trained.
    """

    title: str = ""
    trial: dict[str, Any] = {}
    seeds: Seeds | None = None
    evaluate: tuple[Literal["val", "test"], ...] = ()
    metrics: tuple[str, ...] = ()
    around: tuple[Around, ...] = ()

    seeds_once = field_validator("seeds")(check_seeds)
    fixed: ClassVar[bool] = True

    @field_validator("around", mode="before")
    @classmethod
    def several(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    def points(self) -> list[Point]:
        """The cells of a fixed design, in their order."""
        raise NotImplementedError

    def paths(self) -> list[str]:
        """The paths that the cells set."""
        found: dict[str, None] = {}
        for point in self.points():
            found.update(dict.fromkeys(point.values))
        return list(found)


class Search(StudyBase):
    """Optuna proposes. Rounds of `round` trials: a round is proposed when all results of the
    rounds before it are known. startup: random trials before TPE models anything."""

    design: Literal["search"]
    sampler: Literal["tpe", "random"] = "tpe"
    trials: int = Field(ge=1, le=MAX_CELLS)
    round: int = Field(4, ge=1)
    startup: int = Field(8, ge=1)
    space: dict[str, Axis] = Field(min_length=1)

    fixed: ClassVar[bool] = False

    def paths(self) -> list[str]:
        return list(self.space)


class Grid(StudyBase):
    """Every combination of the listed values; the last path varies fastest."""

    design: Literal["grid"]
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(min_length=1)

    @model_validator(mode="after")
    def bounded(self) -> Grid:
        cells = 1
        for path, levels in self.grid.items():
            cells *= len(levels)
            if len({shown(level) for level in levels}) != len(levels):
                raise ValueError(f"each value of {path} once")
        if cells > MAX_CELLS:
            raise ValueError(f"at most {MAX_CELLS} cells, not {cells}")
        return self

    def points(self) -> list[Point]:
        found = []
        for levels in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, levels, strict=True))
            found.append(Point(cell_name(values), values, values, "grid"))
        return found


class Components(StudyBase):
    """All on/off cells. A component's mapping is what "off" sets; "on" is the centre.

    Cells are ordered by the number of components that are on, all off first.
    """

    design: Literal["components"]
    components: dict[str, Annotated[dict[str, Any], Field(min_length=1)]] = Field(
        min_length=1, max_length=MAX_COMPONENTS
    )

    @model_validator(mode="after")
    def apart(self) -> Components:
        owners: dict[str, str] = {}
        for name, off in self.components.items():
            for path in off:
                if path in owners:
                    raise ValueError(f"{path} in one component, not in {owners[path]} and {name}")
                owners[path] = name
        return self

    def points(self) -> list[Point]:
        names = list(self.components)
        found = []
        for count in range(len(names) + 1):
            for on in itertools.combinations(names, count):
                coords = {name: "on" if name in on else "off" for name in names}
                values = {
                    path: value
                    for name in names
                    if name not in on
                    for path, value in self.components[name].items()
                }
                found.append(Point(cell_name(coords), coords, values, "components"))
        return found


class Variant(SpecPart):
    """One row of a comparison: its own centre and its own partial trial."""

    title: str = ""
    around: tuple[Around, ...] = ()
    trial: dict[str, Any] = {}

    several = field_validator("around", mode="before")(StudyBase.several.__func__)  # type: ignore[attr-defined]


class Compare(StudyBase):
    """Named variants side by side."""

    design: Literal["compare"]
    variants: dict[str, Variant] = Field(min_length=1)

    def points(self) -> list[Point]:
        return [
            Point(name, {"variant": name}, {}, f"variants.{name}", variant=name)
            for name in self.variants
        ]


Study = Annotated[Search | Grid | Components | Compare, Field(discriminator="design")]
DESIGNS = ("search", "grid", "components", "compare")


def cell_name(coords: dict[str, Any]) -> str:
    """`method.alpha=0.1,method.beta=1`: short and stable."""
    return ",".join(f"{key}={_level(value)}" for key, value in coords.items())


def _level(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def needs(study: StudyBase, variant: str | None = None) -> tuple[Around, ...]:
    """What a cell is centred on: the study's own `around`, then its variant's."""
    own = study.variants[variant].around if isinstance(study, Compare) and variant else ()
    return study.around + own
