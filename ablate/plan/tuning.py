"""How much tuning went into each row of a comparison.

The budget of a row is the number of trials (cells × seeds) of all studies whose best it takes,
directly or through others. Rows tuned with different budgets are compared unfairly (Musgrave et
al., "A Metric Learning Reality Check", ECCV 2020), so that a plan warns of them and a report
states them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ablate.designs.study import Study

Size = Callable[[str], int]


def budgets(study: Study, studies: Mapping[str, Study], size: Size) -> dict[str, int]:
    """Cell → trials that went into its tuning."""
    spent = {}
    for point in study.listed:
        reached: dict[str, None] = {}
        waiting = [around.best_of for around in study.needs(point.arm)]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached[name] = None
                waiting += studies[name].centres()
        spent[point.cell] = sum(map(size, reached))
    return spent


def warning(name: str, spent: Mapping[str, int]) -> str | None:
    """One line where the budgets of a comparison differ."""
    if len(set(spent.values())) < 2:
        return None
    by_budget: dict[int, list[str]] = {}
    for cell, budget in spent.items():
        by_budget.setdefault(budget, []).append(cell)
    each = "; ".join(
        f"{budget} trials for {', '.join(cells[:4])}" + (", …" if len(cells) > 4 else "")
        for budget, cells in sorted(by_budget.items())
    )
    return f"{name} compares rows tuned with different budgets: {each}"
