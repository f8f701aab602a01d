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
            if not _wanted(wanted, known):
                raise ConfigError(
                    place, "no level", f"a level of {factor}, or several", "Remove the rule"
                )
            for level in _wanted(wanted, known):
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
    if not rules:
        yield from combinations
        return
    place = {factor: i for i, factor in enumerate(factors)}
    known = {factor: list(map(canonical, levels)) for factor, levels in factors.items()}
    matches = [
        [(place[f], frozenset(map(canonical, _wanted(w, known[f])))) for f, w in rule.items()]
        for rule in rules
    ]
    for levels in combinations:
        texts = list(map(canonical, levels))
        if not any(all(texts[i] in wanted for i, wanted in rule) for rule in matches):
            yield levels


def _wanted(wanted: Any, known: Sequence[str]) -> list[Any]:
    """A rule's levels: one, or a list of them; a level may be a list itself."""
    whole = canonical(wanted) in known or not isinstance(wanted, list | tuple)
    return [wanted] if whole else list(wanted)
