"""Two-level fractional factorials and Plackett–Burman designs as arrays of 0 and 1.

A run is a tuple with one entry per factor: 0 its first level, 1 its second. As signs, −1 and +1,
every column sums to zero and any two columns are orthogonal.

2^(k−p) (Box, Hunter and Hunter, "Statistics for Experimenters", 2nd ed., chapter 6): b = k − p
basic factors run through all their combinations, each further factor is the product of some of
them. Words are bit masks over factors: D = ABC gives the word ABCD. The words and all
their products are the defining relation, the shortest of them is the resolution.

Plackett–Burman (Biometrika 33, 1946): N runs for up to N − 1 factors, N a multiple of 4: cyclic
shifts of the paper's first row, then a run of all minus.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Run = tuple[int, ...]

MAX_FACTORS = 15  # of which generators are sought

# First rows as printed in the paper, + as 1; N = 4 and 8 are the regular fractions.
_ROWS = {
    4: "++-",
    8: "+++-+--",
    12: "++-+++---+-",
    16: "++++-+-++--+---",
    20: "++--++++-+-+----++-",
    24: "+++++-+-++--++--+-+----",
}
MAX_SCREENED = max(_ROWS) - 1


def build_plackett_burman(factors: int) -> list[Run]:
    """Return the smallest design for so many factors, at most MAX_SCREENED; columns beyond them are
    left out."""
    signs = next(row for n, row in _ROWS.items() if n > factors)
    columns = len(signs)
    runs = [
        tuple(int(signs[(column - shift) % columns] == "+") for column in range(factors))
        for shift in range(columns)
    ]
    return [*runs, (0,) * factors]


def build_fractional(factors: int, words: Sequence[int]) -> list[Run]:
    """Return the runs of a 2^(k−p): the first k − p factors run through all combinations, the last
    of them fastest; factor k − p + i is the product of the factors in `words[i]`.

    words: bit masks over the basic factors, bit j for factor j.
    """
    basic = factors - len(words)
    runs = []
    for levels in itertools.product((0, 1), repeat=basic):
        # A product of signs is −1 where the number of minus signs is odd.
        minus = [sum(1 - levels[j] for j in range(basic) if word >> j & 1) % 2 for word in words]
        runs.append((*levels, *(1 - odd for odd in minus)))
    return runs


def compute_defining_relation(factors: int, words: Sequence[int]) -> list[int]:
    """Return every word that equals the identity: bit masks over all factors, shortest first."""
    basic = factors - len(words)
    generators = [word | 1 << (basic + i) for i, word in enumerate(words)]
    products = {0}
    for generator in generators:
        products |= {generator ^ other for other in products}
    return sorted(products - {0}, key=lambda word: (word.bit_count(), _split_letters(word)))


def compute_resolution(factors: int, words: Sequence[int]) -> int:
    """Return length of the shortest word of the defining relation; k + 1 where there is none."""
    relation = compute_defining_relation(factors, words)
    return relation[0].bit_count() if relation else factors + 1


def find_generators(factors: int, least: int) -> list[int]:
    """Return words of the smallest 2^(k−p) of at most MAX_FACTORS whose resolution is at least
    `least` (3, 4 or 5), and of the highest resolution there is with so many runs; none where that
    takes the full factorial."""
    for basic in range(2, factors):
        found = (
            _search_generators(factors, basic, resolution) or [] for resolution in range(least, 6)
        )
        if words := list(itertools.takewhile(bool, found)):
            return words[-1]
    return []


def _search_generators(factors: int, basic: int, least: int) -> list[int] | None:
    """Return generators by backtracking; None if there are none.

    Resolution 4 is lost where a factor is the product of two others, 5 where two products of two
    factors are equal. Short words first: what is tried first is what textbooks print.
    """
    wanted = factors - basic
    if wanted == 1:  # the longest word there can be
        return [(1 << basic) - 1] if factors >= least else None
    candidates = sorted(
        (word for word in range(1 << basic) if word.bit_count() >= max(2, least - 1)),
        key=lambda word: (word.bit_count(), _split_letters(word)),
    )
    if len(candidates) < wanted:
        return None

    def extend(columns: list[int], pairs: frozenset[int], start: int) -> list[int] | None:
        if len(columns) == factors:
            return columns[basic:]
        for place in range(start, len(candidates)):
            word = candidates[place]
            fresh = {word ^ column for column in columns}
            if least >= 4 and word in pairs:
                continue
            if least >= 5 and (fresh & pairs or fresh & set(columns)):
                continue
            whole = extend([*columns, word], pairs | fresh, place + 1)
            if whole is not None:
                return whole
        return None

    start = [1 << j for j in range(basic)]
    pairs = frozenset(a ^ b for a, b in itertools.combinations(start, 2))
    return extend(start, pairs, 0)


def _split_letters(word: int) -> tuple[int, ...]:
    return tuple(j for j in range(word.bit_length()) if word >> j & 1)
