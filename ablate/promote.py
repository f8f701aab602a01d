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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from ablate.searching import Search
from ablate.study import StudyBase
from ablate.study_parts import MAX_CELLS, Arm, Around, Point, cell_name
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from ablate.designs import Study

RANK, SOURCE = "rank", "source"  # coordinates of a promoted cell


class Promote(StudyBase):
    """The best cells of study `of`, in the order of their ranks, 1 being the best.

    Layers of a cell, later wins: the sweep's `trial`, the data set, what `around` takes, what the
    ranked cell gives, and this study's `trial` over all of them. Its cells are known once `of` is
    complete. Ranks whose configurations then coincide share a trial. Where fewer cells of `of`
    succeeded than are wanted, those there are run, the study says so and stays incomplete; studies
    centred on it go on with what it has.

    best: how many cells. share: that share of the cells of `of`, rounded up. One of the two.
    by, take: as in `around`. take's default: the paths that `of` varies or has itself taken. The
        `trial` of `of` is none of these: what must stay as it was there belongs into the sweep's
        `trial`, or here.
    """

    design: Literal["promote"]
    of: str
    best: int | None = Field(None, ge=1, le=MAX_CELLS)
    share: float | None = Field(None, gt=0, le=1)
    by: str | None = None
    take: tuple[str, ...] | None = Field(None, min_length=1)

    _source: int | None = PrivateAttr(None)  # cells of `of`

    @model_validator(mode="after")
    def one_number(self) -> Promote:
        if (self.best is None) == (self.share is None):
            found = "neither best nor share" if self.best is None else "both best and share"
            raise ConfigError(
                "" if self.best is None else "share", found, "one of them",
                "Say how many cells are promoted" if self.best is None else "Remove one",
            )  # fmt: skip
        return self

    def link(self, source: Study) -> None:
        """Say what `of` is; `share` and the notes need its number of cells."""
        self._source = cells(source)

    @property
    def count(self) -> int:
        """How many cells are promoted."""
        if self.best is not None:
            return self.best
        assert self.share is not None and self._source is not None, "link() comes first"
        # As the decimal that was written: 0.07 of 100 is 7, not 8.
        return math.ceil(Fraction(repr(self.share)) * self._source)

    def points(self) -> list[Point]:
        found = []
        for rank in range(1, self.count + 1):
            coords = {RANK: rank}
            found.append(Point(cell_name(coords), coords, {}, "of", ((RANK, str(rank)),)))
        return found

    def ranked(self, arm: Arm = ()) -> Around:
        """The cell of `of` that a cell is; without an arm the best one."""
        rank = int(dict(arm).get(RANK, 1))
        return Around(best_of=self.of, by=self.by, take=self.take, rank=rank)

    def needs(self, arm: Arm = ()) -> tuple[Around, ...]:
        return (*self.around, self.ranked(arm))

    def centres(self) -> dict[str, str]:
        return {**super().centres(), self.of: "of"}

    def notes(self) -> list[str]:
        return [f"the best {self.count} of the {self._source} cells of {self.of}"]


def cells(study: Study) -> int:
    """Number of cells of a study of any design."""
    return study.trials if isinstance(study, Search) else len(study.listed)


def told(point: Point, cell: str, coords: Mapping[str, Any]) -> Point:
    """A promoted cell tells which cell it was, and that one's coordinates."""
    found = {**point.coords, SOURCE: cell}
    return replace(point, coords=found | {k: v for k, v in coords.items() if k not in found})


def check_ranks(studies: Mapping[str, Study], order: Sequence[str]) -> None:
    """Link promote studies to their sources, and raise for a rank that no cell can have.

    Args:
        order: every study after those that it is centred on.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    from ablate.objective_check import arounds

    for name in order:
        study = studies[name]
        if isinstance(study, Promote):
            source = studies[study.of]
            study.link(source)
            if study.count > cells(source):
                raise ConfigError(
                    f"studies.{name}.best", str(study.best),
                    f"at most the {cells(source)} cells of {study.of}", "Promote fewer",
                )  # fmt: skip
        for place, around, centres in arounds(study):
            for centre in centres:
                if around.rank > cells(studies[centre]):
                    raise ConfigError(
                        f"studies.{name}.{place}rank", str(around.rank),
                        f"at most the {cells(studies[centre])} cells of {centre}",
                        "Name a lower rank",
                    )  # fmt: skip
