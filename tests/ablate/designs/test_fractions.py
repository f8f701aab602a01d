"""Two-level fractions of factors: resolution, balance, generators."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ablate.designs.plans import factorial, signs


def test_plackett_burman_12_is_the_papers_table() -> None:
    """Plackett and Burman 1946, the design for N = 12, as in every textbook (rows of signs)."""
    table = (
        "++-+++---+- -++-+++---+ +-++-+++--- -+-++-+++-- --+-++-+++- ---+-++-+++ "
        "+---+-++-++ ++---+-++-+ +++---+-++- -+++---+-++ +-+++---+-+ -----------"
    )
    found = [
        "".join("+" if v > 0 else "-" for v in row)
        for row in signs(factorial(11, fraction="plackett_burman"))
    ]
    assert " ".join(found) == table


@pytest.mark.parametrize(
    ("factors", "least", "runs", "found"),
    # Box, Hunter and Hunter, table 6.22: the smallest 2^(k-p) of each resolution.
    [
        (3, 3, 4, 3),
        (5, 3, 8, 3),
        (7, 3, 8, 3),
        (15, 3, 16, 3),
        (4, 4, 8, 4),
        (6, 4, 16, 4),
        (8, 4, 16, 4),
        (9, 4, 32, 4),
        (5, 5, 16, 5),
        (6, 5, 32, 6),
        (7, 5, 64, 7),
        (8, 5, 64, 5),
        (11, 5, 128, 5),
    ],
)
def test_smallest_fractions(factors: int, least: int, runs: int, found: int) -> None:
    study = factorial(factors, fraction="fractional", resolution=least)
    array = signs(study)
    assert len(array) == runs and len({tuple(r) for r in array.tolist()}) == runs
    assert (array.T @ array == runs * np.eye(factors, dtype=int)).all()
    assert (array.sum(0) == 0).all()
    # The resolution by brute force: the least number of columns whose product is constant.
    for size in range(1, factors + 1):
        constant = [
            abs(array[:, chosen].prod(axis=1).sum()) == runs
            for chosen in map(list, itertools.combinations(range(factors), size))
        ]
        if any(constant):
            break
        if size == least and found == least:
            raise AssertionError("a word of this length was promised")
    assert size == found
