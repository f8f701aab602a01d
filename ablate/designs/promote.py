"""Promotion: train the best cells of a study again at a higher fidelity.

Small images, a frozen backbone with cached features or a subset of the data are cheap versions of a
trial, with their own configuration and trial. A chain of promote studies is successive halving over
any settings:

    heads:   {design: search, trials: 27, trial: {backbone.mode: frozen, training.epochs: 30}, …}
    network: {design: promote, of: heads, best: 9,
              trial: {backbone.mode: finetune, training.epochs: 4}}
    long:    {design: promote, of: network, best: 3,
              trial: {backbone.mode: finetune, training.epochs: 12}}
"""

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
from trainables.words.errors import ConfigError

RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell


@DESIGNS.register("promote")
class Promote(StudyBase):
    """Train the best cells of study `of` again, ordered by rank.

    A cell's layers, of which later ones win, are: the sweep's `trial`, the data set, values taken
    by `around`, values of the ranked cell, this study's `trial`. Cells are known once `of` is
    complete. Ranks with equal configurations share a trial. If fewer cells of `of` succeeded than
    are promoted, those are run, the study is reported as incomplete, and studies centred on it
    continue.

    of: name of the study.
    best: number of cells, or give `share`.
    share: share of the cells of `of`, rounded up.
    seeds: as in any study. A list is not changed by `--seeds`, because finalists are ranked on
        seeds that neither chose nor judge them.
    neutral: as in a search, one more candidate at the best rates of a promoted baseline.
    take: paths taken, as in `around`. Default: those that `of` varies or has taken itself. Settings
        of its `trial` are not among them: repeat them here, or move them to the sweep's `trial`.

    References:
        Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
        optimization", AISTATS 2016, https://arxiv.org/abs/1502.07943; the budget is any path here.

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

    _source_size: int | None = PrivateAttr(None)  # cells of `of`

    @model_validator(mode="after")
    def check_one_number(self) -> "Promote":
        """Refuse a study that gives both `best` and `share`, or neither."""
        if self.best is None and self.share is None:
            raise ConfigError("", "the number of cells is missing", "Give `best` or `share`")
        if self.best is not None and self.share is not None:
            raise ConfigError("share", "`best` is given too", "Remove `best` or `share`")
        return self

    def references(self) -> Iterator[InheritedConfig]:
        yield from super().references()
        yield InheritedConfig(OF, self._build_rank_reference(1))

    def link(self, sizes: Mapping[str, int], neutral: Set[str]) -> None:
        """Learn how many cells `of` has."""
        self._source_size = sizes[self.of]

    @property
    def count(self) -> int:
        """The number of promoted cells: `best`, or `share` of the cells of `of`, rounded up."""
        if self.best is not None:
            return self.best
        assert self.share is not None and self._source_size is not None, "link() comes first"
        # Use the decimal as written, so that 0.07 of 100 is 7 and not 8.
        return math.ceil(Fraction(repr(self.share)) * self._source_size)

    def points(self) -> list[Point]:
        """Return a cell for each rank from the best, and last the neutral cell if there is one.

        The neutral cell has the study's method switched off, at the best values of a baseline.
        """
        around = [inherited for inherited in super().references() if inherited.place != NEUTRAL]
        points = []
        for rank in range(1, self.count + 1):
            name, levels = build_cell_name({RANK: rank}), ((RANK, str(rank)),)
            source = self._build_rank_reference(rank)  # the cell of `of` that is trained again
            bases = (*around, InheritedConfig(OF, source))
            point = Point(name, {RANK: rank}, {}, OF, levels, references=bases, source=source)
            points.append(replace(point, is_unchanged=True))  # the point itself sets nothing
        return points if self.neutral is None else [*points, NEUTRAL_POINT]

    def _build_rank_reference(self, rank: int) -> Around:
        return Around(best_of=self.of, take=self.take, rank=rank)

    def notes(self) -> list[str]:
        return [f"the best {self.count} of the {self._source_size} cells of {self.of}"]


def to_promoted_point(point: Point, cell: str, coords: Mapping[str, Any]) -> Point:
    """Return the point with the promoted cell as SOURCE, and those of its coordinates it lacks."""
    own = {**point.coords, SOURCE: cell}
    return replace(point, coords=own | {k: v for k, v in coords.items() if k not in own})
