"""Define the parts of studies: points, bases (`around`), objectives, seeds, factors, names.

A factor is a path with its levels (`loss.temperature: [0.05, 0.1]`), which may be a whole component
(`loss: [{name: proxy_anchor}, {name: normsoftmax}]`), or a name with named levels, each a partial
trial: `head: {small: {embedding.dim: 64}, large: {…}}`.

A rule of `exclude` is `{factor: level or list of levels, …}`; combinations that match all of it are
left out.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, model_validator

from ablate.designs.layers import Layer
from ablate.search.sampling import Direction
from ablate.search.scheduling import SCHEDULERS, SchedulerBase
from ablate.search.space import list_wanted_values
from trainables.config.registry import Strict, build_choice_annotation
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known, format_value, join_words

if TYPE_CHECKING:
    Scheduler = SchedulerBase
else:
    Scheduler = build_choice_annotation(SCHEDULERS, "name")  # of this and other packages

MAX_SEEDS = 10_000
MAX_SEED = 2**31 - 1
MAX_CELLS = 10_000
MAX_COMBINATIONS = 200_000  # that are looked through for those that `exclude` leaves
SHOWN = 60  # characters of a level in a cell's name

# Options of a study added after the first release; their defaults are left out of identities.
LATER = (
    *("box", "by", "cross", "folds", "limits", "neutral", "objectives", "points", "population"),
    *("prior", "race", "scheduler", "shift_seeds", "splits", "splits_seen", "warm_start", "when"),
)

# Of a compare study (factor, level), …; of a promote study ("rank", "1"); () in other designs.
FactorLevels = tuple[tuple[str, str], ...]


class SpecPart(Strict, extra="forbid", frozen=True):
    """Base of parts of a spec: unknown keys are refused, and instances are immutable."""


class Around(SpecPart):
    """Centre on the best cell of a study.

    best_of: that study. The best cell has the best mean objective over its seeds, and is the
        earlier one on a tie. Of several objectives the first decides, then the second.
    take: the paths taken; default: those which that study varies or has itself taken.
    rank: 2 for the second best cell in this order, and so on; cells that failed, or that a
        scheduler or a race ended early, have no rank.
    neutral: false: take the best cell whose method is switched on; `rank` then counts only such
        cells. By default neutral cells are ranked too (`neutral` of searches and promotions).
    box: in a search, also search the numeric axes with which that study was searched, each within
        this factor of the value that is taken, and within its range there.
    """

    best_of: str
    take: tuple[str, ...] | None = None
    rank: int = Field(1, ge=1)
    neutral: Literal[False] | None = None
    box: float | None = Field(None, gt=1, allow_inf_nan=False)

    def fill_template(self, levels: FactorLevels) -> "Around":
        """Fill the placeholders of `best_of: tune_{method}` with the levels of a combination."""
        name = self.best_of
        for factor, level in levels:
            name = name.replace(f"{{{factor}}}", level)
        return self if name == self.best_of else self.model_copy(update={"best_of": name})


def to_list(value: Any) -> Any:
    """Return a mapping, as in `around: {…}`, as a list with one item; else return the value."""
    return [value] if isinstance(value, dict) else value


class Objective(SpecPart):
    """A metric by which the cells of a study are compared, and its direction.

    metric: name with its split, such as `val/map_at_r`.
    direction: whether larger (maximize) or smaller (minimize) values are better.
    """

    metric: str
    direction: Direction = "maximize"


class Race(SpecPart):
    """Options of a race over seeds.

    after: number of seeds that every cell gets.
    level: probability with which the best cell survives the race.
    """

    after: int = Field(3, ge=2)
    level: float = Field(0.95, gt=0.5, lt=1)


class PrecisionSeeds(SpecPart):
    """Seeds of a study whose number follows from a first stage.

    precision: wanted half-width of the intervals, in the unit in which tables show the primary
        metric. Default: 0.8 of the smallest effect of interest.
    at_most: largest number of seeds.
    first: number of seeds of the first stage (0 … first − 1), of each split in a study with
        `splits`.
    """

    precision: float | None = Field(None, gt=0)
    at_most: int = Field(20, ge=3, le=1000)
    first: int = Field(5, ge=2)

    @model_validator(mode="after")
    def check_order(self) -> "PrecisionSeeds":
        """Check that the first stage does not exceed the largest number of seeds."""
        if self.first > self.at_most:
            raise ConfigError(
                "at_most",
                f"`at_most` is {self.at_most}, below the first stage of {self.first} seeds",
                "Raise `at_most`, or lower `first`",
            )
        return self


def _choose_seed_tag(value: Any) -> str:
    """Return the tag of the form in which `seeds` is given: a member of the union `Seeds`."""
    if isinstance(value, Mapping | PrecisionSeeds):
        return "precision"
    return "list" if isinstance(value, list | tuple) else "number"


Seeds = Annotated[
    Annotated[int, Field(ge=1, le=MAX_SEEDS), Tag("number")]
    | Annotated[tuple[int, ...], Field(min_length=1), Tag("list")]
    | Annotated[PrecisionSeeds, Tag("precision")],
    Discriminator(_choose_seed_tag),
]


def expand_seeds(seeds: Seeds) -> list[int]:
    """Return the list of seeds: n → 0…n−1; if results decide their number, the longest list."""
    if isinstance(seeds, PrecisionSeeds):
        return list(range(seeds.at_most))
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def check_seeds(seeds: Seeds | None) -> Seeds | None:
    """Return `seeds`; raise ConfigError if a list repeats a seed or has one out of range."""
    if isinstance(seeds, tuple):
        if len(set(seeds)) != len(seeds):
            raise ConfigError("seeds", "a seed is in the list twice", "Keep it once")
        if min(seeds) < 0 or max(seeds) > MAX_SEED:
            raise ConfigError("seeds", f"each seed must be from 0 to {MAX_SEED}", "Change the list")
    return seeds


class InheritedConfig(NamedTuple):
    """Values that a study takes from another one.

    Attributes:
        place: where the study says so, for example `around`.
    """

    place: str
    around: Around

    @property
    def place_in_spec(self) -> str:
        """The key, for messages, by which the study chooses the values that it takes.

        It is `around.take`, or `take` of a promote study; if `take` is not given, `around` or `of`.
        """
        if not self.around.take:
            return self.place
        return "take" if self.place == OF else f"{self.place}.take"


@dataclass(frozen=True)
class Point:
    """One cell of a fixed design, before its base is known.

    Attributes:
        values: what the cell sets, by dotted path.
        where: place in the study, for messages.
        levels: (factor, level) pairs that distinguish cells with bases of their own: the
            variant and the levels of `cross` in a comparison, the rank in a promotion.
        layers: partial trials below `values`.
        references: the bases of the cell, lowest layer first; None for those of the study.
        source: the cell of another study that this one trains again.
        is_unchanged: whether the cell is the best cell of another study unchanged.
        shift: added to each seed.
    """

    cell: str
    coords: dict[str, Any]
    values: dict[str, Any]
    where: str
    levels: FactorLevels = ()
    layers: tuple[Layer, ...] = ()
    references: tuple[InheritedConfig, ...] | None = None
    source: Around | None = None
    is_unchanged: bool = False
    shift: int = 0


# The cell in which a method equals the plain loss, at the best rates of a baseline: its name, its
# coordinate and its factor levels.
NEUTRAL = "neutral"
NEUTRAL_POINT = Point(NEUTRAL, {NEUTRAL: "yes"}, {}, NEUTRAL, ((NEUTRAL, NEUTRAL),))
# Marks a comparison's second row, which ignores neutral cells of its base study.
LEFT_OUT = (NEUTRAL, "left out")
OF = "of"  # where a promote study names the one whose cells it trains again


def build_cell_name(coords: Mapping[str, Any]) -> str:
    """Return a short and stable name such as `method.alpha=0.1,method.beta=1`."""
    return ",".join(f"{key}={format_level(value)}" for key, value in coords.items())


def format_level(value: Any) -> str:
    """Return a level as part of a cell's name; text stays as it is.

    A component becomes `proxy_anchor(alpha=16)`, any other value JSON. If that is long, it is cut
    and ends with a digest.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        options = [f"{key}={format_level(v)}" for key, v in value.items() if key != "name"]
        text = str(value["name"]) + (f"({', '.join(options)})" if options else "")
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except ValueError:  # the value contains itself
            text = repr(value)
    if len(text) <= SHOWN:
        return text
    digest = hashlib.sha256(to_canonical_json(value).encode()).hexdigest()[:6]
    return f"{text[: SHOWN - 8]}…{digest}"


LISTED, NAMED = "list of levels", "named levels"  # the members of the union

Levels = Annotated[
    Annotated[tuple[Any, ...], Field(min_length=1), Tag(LISTED)]
    | Annotated[dict[str, dict[str, Any]], Field(min_length=1), Tag(NAMED)],
    Discriminator(lambda given: NAMED if isinstance(given, dict) else LISTED),
]

Rule = Annotated[dict[str, Any], Field(min_length=1)]


def expand_level(factor: str, levels: Levels, level: Any) -> dict[str, Any]:
    """Return what a level sets, by path: the values of a named level, or the factor's own path."""
    return dict(levels[level]) if isinstance(levels, dict) else {factor: level}


def check_factors(factors: dict[str, Levels], key: str, least: int = 1) -> None:
    """Raise ConfigError for a repeated level, too few levels, or a path that two factors set."""
    owners: dict[str, str] = {}  # path → the factor that sets it
    for factor, levels in factors.items():
        field = f"{key}.{factor}"
        if len({to_canonical_json(level) for level in levels}) != len(levels):
            raise ConfigError(
                field, f"{format_value(list(levels))} names a level twice", "Keep it once"
            )
        if len(levels) < least:
            raise ConfigError(
                field, f"a factor needs {least} levels or more", "Set a fixed value in `trial`"
            )
        settings = [expand_level(factor, levels, level) for level in levels]
        for path in set[str]().union(*settings):
            if path in owners:
                raise ConfigError(
                    field,
                    f"{owners[path]} sets {path} too",
                    "Merge both into one with named levels",
                )
            owners[path] = factor


def check_size(cells: int) -> None:
    if not 0 < cells <= MAX_CELLS:
        raise ConfigError(
            "", f"this study has {cells} cells", f"Change it so that it has 1 to {MAX_CELLS} cells"
        )


def check_rules(rules: Iterable[Rule], factors: Mapping[str, Collection[Any]]) -> None:
    """Check that rules of `exclude` name factors and levels of the design.

    Args:
        factors: factor → its levels, or their names.

    Raises:
        ConfigError: a rule names a factor or level that the design does not have.
    """
    for i, rule in enumerate(rules):
        for factor, wanted in rule.items():
            field = f"exclude.{i}.{factor}"
            check_known(field, [factor], factors, "the factor")
            # levels may be mappings, so they are compared as JSON
            texts = [to_canonical_json(level) for level in factors[factor]]
            levels = list_wanted_values(wanted, texts)
            if not levels:
                raise ConfigError(field, f"the rule names no level of {factor}", "Remove the rule")
            for level in levels:
                if to_canonical_json(level) not in texts:
                    known = join_words(map(format_value, factors[factor]))
                    raise ConfigError(
                        field,
                        f"{format_value(level)} is no level of {factor}",
                        f"Name one of its levels {known}",
                    )


def drop_excluded(
    combinations: Iterable[tuple[Any, ...]],
    rules: Sequence[Rule],
    factors: Mapping[str, Collection[Any]],
) -> Iterator[tuple[Any, ...]]:
    """Yield the combinations (one level for each factor, in order) that no rule excludes.

    A rule maps factors to levels; it excludes a combination that has such a level of each factor.
    """
    # turn each rule into a list of conditions (index of a factor, levels to match as JSON)
    conditions: list[list[tuple[int, set[str]]]] = [[] for _ in rules]
    for rule, pairs in zip(rules, conditions, strict=True):
        for i, (factor, levels) in enumerate(factors.items()):
            if factor in rule:
                values = list_wanted_values(rule[factor], list(map(to_canonical_json, levels)))
                pairs.append((i, set(map(to_canonical_json, values))))
    for combination in combinations:
        texts = list(map(to_canonical_json, combination)) if rules else []
        if not any(all(texts[i] in matching for i, matching in pairs) for pairs in conditions):
            yield combination


def drop_unused(dump: Any) -> Any:
    """Return a dumped study without the options that later versions added and that are unused.

    The identity of a sweep is a hash of such dumps, and so stays the same in later versions.
    """
    if isinstance(dump, list):
        return [drop_unused(value) for value in dump]
    if not isinstance(dump, dict):
        return dump
    return {key: drop_unused(dump[key]) for key in dump if not _is_unused(dump, key)}


def _is_unused(options: dict[str, Any], key: str) -> bool:
    """Return whether an option was added after the first release and has its default."""
    if key in LATER:
        return options[key] in (None, {}, [])
    if key == "rank":  # of `around`
        return "best_of" in options and options[key] == 1
    # `exclude` is an older option in designs other than compare
    return key == "exclude" and options.get("design") == "compare" and not options[key]
