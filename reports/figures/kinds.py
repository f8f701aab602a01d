"""What draws each kind of figure that a recipe asks for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reports.figures.drawn import Drawn
from reports.figures.factors.critical_difference import critical_difference
from reports.figures.factors.interactions import interactions
from reports.figures.factors.shapley import shapley
from reports.figures.searches.cost import cost
from reports.figures.searches.importance import importance
from reports.figures.searches.parallel import parallel
from reports.figures.searches.promotions import promotions
from reports.figures.searches.slices import slices
from reports.frame import Frame
from reports.parts.plugins import builder
from reports.recipe import Figure

Drawer = Callable[[Frame, Figure], Drawn]
DRAWERS: Mapping[str, Drawer] = {  # those whose options `reports/parts/figures.py` describes
    "cost": cost,
    "critical_difference": critical_difference,
    "importance": importance,
    "interactions": interactions,
    "parallel": parallel,
    "promotions": promotions,
    "shapley": shapley,
    "slices": slices,
}


def drawer(kind: str) -> Drawer:
    """What draws a figure of that kind, here or in another package."""
    return DRAWERS.get(kind) or builder("figures", kind)
