"""Define factors, their levels, and the combinations that a crossed design leaves out.

A factor is a path with its levels (`loss.temperature: [0.05, 0.1]`), which may be a whole component
(`loss: [{name: proxy_anchor}, {name: normsoftmax}]`), or a name with named levels, each a partial
trial: `head: {small: {embedding.dim: 64}, large: {…}}`.

A rule of `exclude` is `{factor: level or list of levels, …}`; combinations that match all of it are
left out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from ablate.designs.parts import MAX_CELLS
from ablate.samplers.branches import list_wanted_values
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known, format_value, join_words

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
