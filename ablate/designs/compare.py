"""Compare named variants, or crossed methods, losses, data sets and backbones."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.layers import Layer
from ablate.designs.parts import (
    LEFT_OUT,
    MAX_COMBINATIONS,
    NEUTRAL,
    Around,
    InheritedConfig,
    Point,
    Rule,
    SpecPart,
    build_cell_name,
    check_rules,
    check_size,
    drop_excluded,
    to_list,
)
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known

VARIANT = "variant"  # name of the factor whose levels are `variants`
OTHER = ", not neutral"  # end of the name of a row with the best cell that is not neutral


class Variant(SpecPart):
    """One row of a comparison, or one level of a crossed factor.

    title: what reports call it. around: its own centre. trial: its own partial trial.
    shift_seeds: added to each of the study's seeds, so that a row can be the baseline itself on
    other seeds (a control that must show no difference); its table then pairs rows in the order of
    their seeds.
    """

    title: str = ""
    around: tuple[Around, ...] = ()
    trial: dict[str, Any] = Field(default_factory=dict)
    shift_seeds: int | None = Field(None, ge=1, le=2**31)

    listed_around = field_validator("around", mode="before")(to_list)


@DESIGNS.register("compare")
class Compare(StudyBase):
    """Compare named variants, or every combination of crossed factors.

    variants: rows by name.
    cross: `{method: {plain: {trial: …}, ddml: {…}}, loss: {…}}`; the last factor varies fastest,
        and `variants` are a further factor. All `around` of a combination precede all its `trial`s,
        each in the order of the factors.
    around: studies whose best values are taken; `best_of: tune_{method}_{loss}` is filled in with
        the levels of each combination.
    tuning: "as_published" for rows with settings as papers print them. The check for equal tuning
        budgets skips the study, and its table says so.
    exclude: combinations left out, `{factor: level or list of levels, …}`, if all of them match,
        for example a method that does not support a loss. "variant" is the factor of `variants`.

    Example:
        >>> rows = {"plain": {"trial": {"method.name": "plain"}},
        ...     "ddml": {"trial": {"method.name": "ddml"}}}
        >>> study = Compare(design="compare", variants=rows)
        >>> [point.cell for point in study.points()]
        ['plain', 'ddml']
    """

    design: Literal["compare"]
    variants: dict[str, Variant] = Field(default_factory=dict)
    cross: dict[str, Annotated[dict[str, Variant], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    exclude: tuple[Rule, ...] = ()
    tuning: Literal["as_published"] | None = None

    purpose: ClassVar[str] = "compares {}"

    _neutral: frozenset[str] = PrivateAttr(frozenset())  # studies that a neutral cell may win

    @model_validator(mode="after")
    def check_combinations(self) -> "Compare":
        """Refuse reserved names, faulty rules, too many cells and unknown factors in `best_of`."""
        factors = self.list_factors()
        if not factors:
            raise ConfigError(
                "", "this study compares nothing", "Give `variants`, `cross`, or both"
            )
        for name in {VARIANT, NEUTRAL} & self.cross.keys():
            raise ConfigError(
                f"cross.{name}",
                f"the name {name} is reserved",
                "Rename this factor, or list `variants`",
            )
        if self.exclude and len(factors) < 2:
            raise ConfigError(
                "exclude",
                "`exclude` needs two factors or more",
                "Remove the level from the only factor",
            )
        check_rules(self.exclude, factors)
        total = math.prod(len(levels) for levels in factors.values())
        if total <= MAX_COMBINATIONS and self.exclude:  # check_size refuses larger totals
            total = len(self.combinations)
        check_size(total)
        for i, around in enumerate(self.around):
            names = re.findall(r"{(.*?)}", around.best_of)  # placeholders: tune_{method}
            check_known(f"around.{i}.best_of", names, factors, "the factor")
        return self

    @property
    def subjects(self) -> Iterable[str]:
        """The rows, and each crossed factor with its levels."""
        crossed = (f"{factor} {', '.join(levels)}" for factor, levels in self.cross.items())
        return [*self.variants, *crossed]

    def list_factors(self) -> dict[str, dict[str, Variant]]:
        """Return the variants as a factor, if there are any, and the crossed factors."""
        return ({VARIANT: dict(self.variants)} if self.variants else {}) | dict(self.cross)

    def references(self) -> Iterator[InheritedConfig]:
        """Yield the references of the study to other studies, then those of its levels.

        Placeholders as in `best_of: tune_{method}` are filled in for each combination of levels.
        """
        for field, around in super().references():
            names = (around.fill_template(point.levels).best_of for point in self.combinations)
            for name in dict.fromkeys(names):
                yield InheritedConfig(field, around.model_copy(update={"best_of": name}))
        for factor, levels in self.list_factors().items():
            for level in levels:
                yield from self._find_base_references(factor, level)

    def link(self, sizes: Mapping[str, int], neutral: Set[str]) -> None:
        self._neutral = frozenset(neutral)

    def points(self) -> list[Point]:
        """Return a row for each combination, then second rows in which the method is surely on.

        A row takes the best cell of another study, in which the method may be switched off. In
        that case a second row is trained with the best of the cells in which the method is on.
        """
        rows = []
        for point in self.combinations:
            may_be_neutral = any(map(self._inherits_method, point.references or ()))
            # is_unchanged: the row may be the other study's best cell as it is
            rows.append(replace(point, is_unchanged=may_be_neutral))
        return [*rows, *(self._build_not_neutral_point(row) for row in rows if row.is_unchanged)]

    @cached_property
    def combinations(self) -> tuple[Point, ...]:
        """One point for each combination of variants and crossed levels that `exclude` keeps."""
        factors = self.list_factors()
        every = itertools.product(*factors.values())
        return tuple(map(self._build_point, drop_excluded(every, self.exclude, factors)))

    def left_out(self) -> Iterator[Point]:
        kept = {point.levels for point in self.combinations}
        every = itertools.product(*self.list_factors().values()) if self.exclude else ()
        return (point for point in map(self._build_point, every) if point.levels not in kept)

    def _build_point(self, names: Sequence[str]) -> Point:
        """Return the cell of a combination; `names` has the name of one level for each factor."""
        factors = self.list_factors()
        levels = tuple(zip(factors, names, strict=True))
        # collect its bases: those of the study, then those of its levels
        bases = []
        for field, around in super().references():
            bases.append(InheritedConfig(field, around.fill_template(levels)))
        for pair in levels:
            bases += self._find_base_references(*pair)
        # collect the levels' partial trials and the sum of shifts; the last level's `place` stays
        layers, shift = [], 0
        for factor, level in levels:
            variant, place = factors[factor][level], _format_place(factor, level)
            layers.append(Layer(f"{place}.trial", variant.trial))
            shift += variant.shift_seeds or 0
        cell = names[0] if len(names) == 1 else build_cell_name(dict(levels))
        return Point(cell, dict(levels), {}, place, levels, (*layers,), (*bases,), shift=shift)

    def _find_base_references(self, factor: str, level: str) -> Iterator[InheritedConfig]:
        for around in self.list_factors()[factor][level].around:
            yield InheritedConfig(f"{_format_place(factor, level)}.around", around)

    def _inherits_method(self, inherited: InheritedConfig) -> bool:
        """Return whether the options of a method may be taken from a cell that switches it off."""
        around = inherited.around  # its `neutral` is None or False, which asks for the method on
        taken = around.take or ("method",)  # without `take`, the method's options are taken too
        takes_method = any(path.split(".")[0] == "method" for path in taken)
        return takes_method and around.neutral is None and around.best_of in self._neutral

    def _build_not_neutral_point(self, point: Point) -> Point:
        """Return the second row of a point, which takes the best cells with the method on.

        The row's name ends with ", not neutral": a neutral cell has its method switched off.
        """
        coords = {**point.coords, NEUTRAL: "left out"}
        if VARIANT in coords:
            coords[VARIANT] += OTHER
        bases = []
        for base in point.references or ():
            not_neutral = base.around.model_copy(update={"neutral": False})
            may_be_neutral = self._inherits_method(base)
            bases.append(InheritedConfig(base.place, not_neutral) if may_be_neutral else base)
        name, levels = point.cell + OTHER, (*point.levels, LEFT_OUT)
        row = replace(point, cell=name, coords=coords, levels=levels, references=tuple(bases))
        return replace(row, is_unchanged=False)

    def notes(self) -> list[str]:
        """Return the plan's line on the second rows, in which the method is on; [] without any."""
        others = [point.cell for point in self.all_points[len(self.combinations) :]]
        if not others:
            return []
        rows = "; ".join(others[:5]) + (f"; … ({len(others)} rows)" if len(others) > 5 else "")
        return [f"these rows train only if the best cell has its method off: {rows}"]


def _format_place(factor: str, level: str) -> str:
    return f"variants.{level}" if factor == VARIANT else f"cross.{factor}.{level}"
