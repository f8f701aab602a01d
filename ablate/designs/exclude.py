"""Combinations that a crossed design leaves out.

A rule is `{factor: level or list of levels, …}`: combinations that match all of it go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from ablate.values.canonical import canonical
from ablate.values.errors import listed, nearest, shown
from trainables.errors import ConfigError

Rule = Annotated[dict[str, Any], Field(min_length=1)]


def check_rules(
    rules: Iterable[Rule], factors: Mapping[str, Collection[Any]], key: Callable[[str], str]
) -> None:
    """Raise for a factor or a level that the design does not have.

    Args:
        factors: each with its levels, or their names. key: where in the study a factor's levels
            stand.

    Raises:
        ConfigError: its path is the rule's place in the study.
    """
    for i, rule in enumerate(rules):
        for factor, wanted in rule.items():
            place = f"exclude.{i}.{factor}"
            if factor not in factors:
                raise ConfigError(
                    place,
                    f"the unknown factor {factor!r}",
                    f"one of {listed(factors)}",
                    nearest(factor, factors),
                )
            known = [canonical(level) for level in factors[factor]]
            levels = levels_of(wanted, known)
            if not levels:
                raise ConfigError(
                    place, "no level", f"a level of {factor}, or several", "Remove the rule"
                )
            for level in levels:
                if canonical(level) not in known:
                    raise ConfigError(
                        place,
                        shown(level),
                        f"a level of {factor}: {listed(map(shown, factors[factor]))}",
                        f"Name a level as it is written in `{key(factor)}`",
                    )


def not_excluded(
    combinations: Iterable[tuple[Any, ...]],
    rules: Sequence[Rule],
    factors: Mapping[str, Collection[Any]],
) -> Iterator[tuple[Any, ...]]:
    """The combinations, one level for each factor in order, that no rule takes out."""
    names = list(factors)
    known = {factor: list(map(canonical, levels)) for factor, levels in factors.items()}
    matches = [
        [(names.index(f), {*map(canonical, levels_of(w, known[f]))}) for f, w in rule.items()]
        for rule in rules
    ]
    for levels in combinations:
        texts = list(map(canonical, levels)) if rules else []
        if not any(all(texts[i] in wanted for i, wanted in rule) for rule in matches):
            yield levels


def levels_of(wanted: Any, known: Sequence[str]) -> list[Any]:
    """The levels that a rule or a condition names: one, or a list; a level may be a list itself.

    known: all there are, as canonical JSON.
    """
    whole = not isinstance(wanted, list | tuple) or canonical(wanted) in known
    return [wanted] if whole else list(wanted)
