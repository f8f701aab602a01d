"""Combinations that a crossed design leaves out.

A rule is `{factor: level or list of levels, …}`: combinations that match all of it go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from ablate.levels import canonical
from ablate.messages import listed, nearest, shown
from trainables.errors import ConfigError

Rule = Annotated[dict[str, Any], Field(min_length=1)]


def check_rules(rules: Iterable[Rule], factors: Mapping[str, Collection[Any]], key: str) -> None:
    """Raise for a factor or a level that the design does not have.

    Args:
        factors: each with its levels, or their names. key: where the factors stand in the study.

    Raises:
        ConfigError: its path is the rule's place in the study.
    """
    for i, rule in enumerate(rules):
        for factor, wanted in rule.items():
            place = f"exclude.{i}.{factor}"
            if factor not in factors:
                raise ConfigError(
                    place, f"the unknown factor {factor!r}", f"one of {listed(factors)}",
                    nearest(factor, factors),
                )  # fmt: skip
            known = [canonical(level) for level in factors[factor]]
            for level in _wanted(wanted, known):
                if canonical(level) not in known:
                    raise ConfigError(
                        place, shown(level),
                        f"a level of {factor}: {listed(map(shown, factors[factor]))}",
                        f"Name a level as it is written in `{key}`",
                    )  # fmt: skip


def excluded(
    levels: Sequence[Any], rules: Iterable[Rule], factors: Mapping[str, Collection[Any]]
) -> bool:
    """Whether a rule takes out a combination, one level for each factor in order."""
    place = {factor: i for i, factor in enumerate(factors)}
    return any(
        all(
            canonical(levels[place[factor]])
            in map(canonical, _wanted(wanted, list(map(canonical, factors[factor]))))
            for factor, wanted in rule.items()
        )
        for rule in rules
    )


def _wanted(wanted: Any, known: Sequence[str]) -> list[Any]:
    """A rule's levels: one, or a list of them; a level may be a list itself."""
    whole = canonical(wanted) in known or not isinstance(wanted, list | tuple)
    return [wanted] if whole else list(wanted)
