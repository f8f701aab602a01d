"""Say things in messages: words in a row, values, and what an unknown word may have meant."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

from trainables.words.errors import ConfigError


def join_words(words: Iterable[object]) -> str:
    """Join words by commas; "nothing" if there are none."""
    return ", ".join(str(item) for item in words) or "nothing"


def format_value(value: object) -> str:
    """Return a value as in YAML, cut to 58 characters if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def find_closest(query: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the candidate most similar to a word, ignoring case; None if none is similar."""
    # reversed: of candidates that differ only in case, the first one stays
    by_case = {candidate.casefold(): candidate for candidate in reversed(list(candidates))}
    close = difflib.get_close_matches(query.strip().casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[close[0]] if close else None


def suggest_nearest(
    query: str, candidates: Iterable[str], otherwise: str = "Choose one of the known names."
) -> str:
    """Return a remedy for an unknown word: the most similar candidate, if there is one."""
    close = find_closest(query, candidates)
    return f"Did you mean {close!r}?" if close else otherwise


def describe_unknown(what: str, query: str, candidates: Iterable[str]) -> tuple[str, str]:
    """Return fault and remedy for an unknown word; the fault lists all candidates."""
    words = list(candidates)
    fault = f"{what} {query!r} is unknown; there are {join_words(words)}"
    return fault, suggest_nearest(query, words)


def check_known(
    field: str, names: Iterable[Any], candidates: Iterable[str], what: str = "the name"
) -> None:
    """Raise ConfigError for the first name that is not among the candidates."""
    for name in names:
        if name not in candidates:
            raise ConfigError(field, *describe_unknown(what, str(name), candidates))


def describe_unknown_metric(
    metric: str, candidates: Iterable[str], more: str = ""
) -> tuple[str, str]:
    """Return fault and remedy for an unknown metric; the fault lists the six most similar ones.

    `more` is added after the list of metrics, for example a key that names further metrics.
    """
    names = list(candidates)
    # R@1 and P@1 → recall_at_1, mAP@R and mAP → map_at_r, F-1 → f1, RP → r_precision
    split, slash, last = metric.casefold().replace("@", "_at_").rpartition("/")
    last = {"map": "map_at_r", "rp": "r_precision", "f-1": "f1"}.get(last, last)
    last = re.sub(r"^[rp]_at_", "recall_at_", last)
    # a bare name stands for the metric on validation images
    spelling = f"{split}{slash}{last}" if slash or f"val/{last}" not in names else f"val/{last}"
    similar = difflib.get_close_matches(spelling, names, n=6, cutoff=0)
    n_others = len(names) - len(similar)
    others = f" and {n_others} others" if n_others > 0 else ""
    known = f"there are {', '.join(similar)}{others}{more}"
    return f"{metric!r} is no metric here; {known}", suggest_nearest(spelling, names)
