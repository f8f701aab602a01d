"""Whether a number of seeds can give any verdict. No SciPy here: a plan asks, and stays quick."""

from __future__ import annotations


def pairs_needed(comparisons: int, level: float = 0.05) -> int:
    """Return the least n with comparisons · 2/2^n ≤ level.

    Below it no difference can be significant after Holm's correction, whatever the values are.
    """
    n = 2
    while comparisons * 2.0 ** (1 - n) > level:
        n += 1
    return n


def can_reach_verdict(pairs: int, comparisons: int, level: float = 0.05) -> bool:
    """Tell whether any comparison of a table can come out better or worse.

    The rule of verdicts is the paired sign-flip permutation test with Holm's correction over the
    comparisons of the table: its least p is comparisons · 2/2^pairs.

    Args:
        pairs: seeds that both rows of a comparison have. comparisons: of the table.
    """
    return pairs >= pairs_needed(comparisons, level)
