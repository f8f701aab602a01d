"""What all designs share: the base of a study, the points that are its cells, levels by name.

A study has a centre: the layers below its own cells, into which the best values of other studies
may be taken (`around`). Fixed designs list their points at once; a search grows by results
(`ablate/search.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ablate.racing import Race
from ablate.seeds import MAX_SEED, MAX_SEEDS

MAX_CELLS = 10_000
SHOWN = 60  # characters of a level in a cell's name


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


Arm = tuple[tuple[str, str], ...]  # of a compare study: (factor, level), …; () in other designs


@dataclass(frozen=True)
class Point:
    """One cell of a fixed design, before its centre is known.

    values: what the cell sets, by dotted path. where: its place in the study.
    arm: the variant, and the levels of `cross`, whose layers it needs, in a compare study.
    """

    cell: str
    coords: dict[str, Any]
    values: dict[str, Any]
    where: str
    arm: Arm = ()


class StudyBase(SpecPart):
    """What all designs share.

    race: end repeats over seeds early where a cell is clearly worse (`ablate/racing.py`).
    evaluate: the splits read of each finished trial.
    metrics: what is read of them besides the usual ones, by name (`density`); a trial that has
        finished before is evaluated again and not trained.
    """

    title: str = ""
    trial: dict[str, Any] = {}
    seeds: Seeds | None = None
    race: Race | None = None
    evaluate: tuple[Literal["val", "test"], ...] = ()
    metrics: tuple[str, ...] = ()
    around: tuple[Around, ...] = ()

    seeds_once = field_validator("seeds")(check_seeds)
    fixed: ClassVar[bool] = True

    @field_validator("around", mode="before")
    @classmethod
    def several(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @cached_property
    def listed(self) -> tuple[Point, ...]:
        return tuple(self.points())

    def points(self) -> list[Point]:
        """The cells of a fixed design, in their order."""
        raise NotImplementedError

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that the cells set."""
        return tuple(dict.fromkeys(path for point in self.listed for path in point.values))

    def centres(self) -> dict[str, str]:
        """The studies this one is centred on → the place in the study that says so."""
        return {around.best_of: "around.best_of" for around in self.around}

    def needs(self, arm: Arm = ()) -> tuple[Around, ...]:
        """What a cell is centred on, lowest layer first."""
        return self.around

    def notes(self) -> list[str]:
        """What a plan should say of the design besides its number of cells."""
        return []


def canonical(value: object) -> str:
    """A level as text by which levels are told apart."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def cell_name(coords: Mapping[str, Any]) -> str:
    """`method.alpha=0.1,method.beta=1`: short and stable."""
    return ",".join(f"{key}={level_text(value)}" for key, value in coords.items())


def level_text(value: Any) -> str:
    """A level in a cell's name: text as it is, `proxy_anchor(alpha=16)` for a whole component,
    else JSON; what is too long ends in a digest, so that different levels differ."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        options = [f"{key}={level_text(v)}" for key, v in value.items() if key != "name"]
        text = str(value["name"]) + (f"({', '.join(options)})" if options else "")
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except ValueError:
            text = repr(value)
    if len(text) <= SHOWN:
        return text
    digest = hashlib.sha256(canonical(value).encode()).hexdigest()[:6]
    return f"{text[: SHOWN - 8]}…{digest}"
