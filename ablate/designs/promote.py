"""Promotion: the best cells of one study, each trained again at a higher fidelity.

A smaller image, a frozen backbone with cached features or a subset of the data are cheap looks
at a trial that change its configuration, and so they are trials of their own. A chain of promote
studies is successive halving over any fields:

    heads:   {design: search, trials: 27, trial: {backbone.mode: frozen, training.epochs: 30}, …}
    network: {design: promote, of: heads, best: 9,
              trial: {backbone.mode: finetune, training.epochs: 4}}
    long:    {design: promote, of: network, best: 3,
              trial: {backbone.mode: finetune, training.epochs: 12}}

Source: Jamieson & Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016, whose budget is here any path of a trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.parts import (
    MAX_CELLS,
    NEUTRAL,
    NEUTRAL_POINT,
    OF,
    Around,
    InheritedConfig,
    Point,
    build_cell_name,
)
from trainables.errors import ConfigError

RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell


@DESIGNS.register("promote")
class Promote(StudyBase):
    """The best cells of study `of`, in the order of their ranks, 1 being the best.

    Layers of a cell, later wins: the sweep's `trial`, the data set, what `around` takes, what the
    ranked cell gives, and this study's `trial` over all of them. Its cells are known once `of` is
    complete. Ranks whose configurations then coincide share a trial. Where fewer cells of `of`
    succeeded than are wanted, those there are run, the study says so and stays incomplete; studies
    centred on it go on with what it has.

    of: the study. best: how many cells. share: that share of the cells of `of`, rounded up. One of
        the two.
    seeds: named one by one they are its own, and `--seeds` leaves them: finalists are ranked on
        seeds that neither chose them nor judge them.
    neutral: as in a search: one candidate more, at the best rates of a baseline that was promoted
        likewise.
    take: as in `around`; default: the paths that `of` varies or has itself taken. The
        `trial` of `of` is none of these: what must stay as it was there belongs into the sweep's
        `trial`, or here.

    Example:
        >>> study = Promote(design="promote", of="heads", best=2)
        >>> [point.cell for point in study.points()]
        ['rank=1', 'rank=2']
    """

    design: Literal["promote"]
    of: str
    best: int | None = Field(None, ge=1, le=MAX_CELLS)
    share: float | None = Field(None, gt=0, le=1)
    take: tuple[str, ...] | None = Field(None, min_length=1)
    neutral: Around | None = None

    tables: ClassVar[tuple[str, ...]] = ("promoted", "compare")

    _source: int | None = PrivateAttr(None)  # cells of `of`

    @model_validator(mode="after")
    def check_one_number(self) -> Promote:
        if self.best is None and self.share is None:
            raise ConfigError("", "it needs best or share: say how many cells are promoted")
        if self.best is not None and self.share is not None:
            raise ConfigError("share", "best is given too: remove one of the two")
        return self

    def references(self) -> Iterator[InheritedConfig]:
        yield from super().references()
        yield InheritedConfig(OF, self._build_ranked_point(1))

    def link(self, sizes: Mapping[str, int], neutral: Set[str]) -> None:
        """Learn how many cells `of` has."""
        self._source = sizes[self.of]

    @property
    def count(self) -> int:
        """The number of promoted cells."""
        if self.best is not None:
            return self.best
        assert self.share is not None and self._source is not None, "link() comes first"
        # As the decimal that was written: 0.07 of 100 is 7, not 8.
        return math.ceil(Fraction(repr(self.share)) * self._source)

    def points(self) -> list[Point]:
        around = [inherited for inherited in super().references() if inherited.place != NEUTRAL]
        points = []
        for rank in range(1, self.count + 1):
            again, arm = self._build_ranked_point(rank), ((RANK, str(rank)),)
            point = Point(build_cell_name({RANK: rank}), {RANK: rank}, {}, OF, arm, stands_for=True)
            points.append(replace(point, takes=(*around, InheritedConfig(OF, again)), again=again))
        return points if self.neutral is None else [*points, NEUTRAL_POINT]

    def _build_ranked_point(self, rank: int) -> Around:
        return Around(best_of=self.of, take=self.take, rank=rank)

    def notes(self) -> list[str]:
        return [f"the best {self.count} of the {self._source} cells of {self.of}"]


def to_promoted_point(point: Point, cell: str, coords: Mapping[str, Any]) -> Point:
    """Return a point with the name and coordinates of the cell that it promotes."""
    coordinates = {**point.coords, SOURCE: cell}
    return replace(
        point, coords=coordinates | {k: v for k, v in coords.items() if k not in coordinates}
    )
