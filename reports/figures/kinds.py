"""What draws each kind of figure that a recipe asks for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reports.figures.drawn import Drawn
from reports.figures.factors.critical_difference import critical_difference
from reports.figures.factors.interactions import interactions
from reports.figures.factors.shapley import shapley
from reports.figures.models.affinity import affinity
from reports.figures.models.class_sizes import class_sizes
from reports.figures.models.embedding_map import embedding_map
from reports.figures.models.gallery import gallery
from reports.figures.models.grad_cam import grad_cam
from reports.figures.models.plane import plane
from reports.figures.models.single_step import single_step
from reports.figures.models.spaces import distances, spectrum
from reports.figures.models.uncertainty import uncertainty
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
    "affinity": affinity,
    "class_sizes": class_sizes,
    "cost": cost,
    "critical_difference": critical_difference,
    "distances": distances,
    "embedding_map": embedding_map,
    "gallery": gallery,
    "grad_cam": grad_cam,
    "importance": importance,
    "interactions": interactions,
    "parallel": parallel,
    "plane": plane,
    "promotions": promotions,
    "shapley": shapley,
    "single_step": single_step,
    "slices": slices,
    "spectrum": spectrum,
    "uncertainty": uncertainty,
}


def drawer(kind: str) -> Drawer:
    """What draws a figure of that kind, here or in another package."""
    return DRAWERS.get(kind) or builder("figures", kind)
