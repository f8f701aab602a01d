"""Spend the error level over the looks at a comparison to which seeds were added.

Who adds seeds until a row is better or worse has a chance at every look: six looks (3, 5, 8, 10, 15
and 20 seeds), each at 5 %, find a false difference in 17 % of tables. So that all looks together
keep 5 %, a spec plans their number K (`report: {looks: K}`): the last one has half of the 5 %, the
others share the other half. By Bonferroni's inequality this holds under every rule.

A single look has the whole 5 %. A look that nobody planned has no level left, so that it cannot be
had for nothing: further looks have 0.25 %, 0.125 %, …, together at most 0.5 % beyond the 5 %.
"""

from reports.stats.blocks import LEVEL

BEYOND = 0.005  # chance of a false difference that all looks beyond the planned ones may add


def compute_look_level(look: int, planned: int) -> float:
    """Return the level of the intervals of a look, counted from 1."""
    alpha = 1 - LEVEL
    if look > planned:
        return 1 - BEYOND * 0.5 ** (look - planned)
    if planned == 1:
        return LEVEL
    return 1 - alpha / 2 / (1 if look == planned else planned - 1)
