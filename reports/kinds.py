"""List the kinds of tables, figures and comparison rules of this and other packages.

Each is an entry point, `name = module:function`. Other packages use the groups `ablate.tables`,
`ablate.figures` and `ablate.rules`. A table's function takes (Frame, recipe.Table, the study's
cells) and returns a `tables.model.Sheet`. A figure is a `figures.figure.FigureKind`, which has
options, or a function of (Frame, recipe.Figure) that returns a `DrawnFigure`. Names are listed
without importing their modules, which keeps plans fast.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["tables", "figures", "rules"]

TABLES = {
    "components": "reports.tables.comparison:compare_cells",
    "compare": "reports.tables.comparison:compare_cells",
    "search": "reports.tables.search:list_best_trials",
    "effects": "reports.tables.effects:estimate_effects",
    "importance": "reports.tables.search:estimate_importances",
    "promoted": "reports.tables.search:list_promoted_cells",
}
FIGURES = {
    "affinity": "reports.figures.embedding_space:affinity",
    "class_sizes": "reports.figures.embedding_space:class_sizes",
    "cost": "reports.figures.cost:cost",
    "critical_difference": "reports.figures.ranks:critical_difference",
    "distances": "reports.figures.embedding_space:distances",
    "embedding_map": "reports.figures.embedding_space:embedding_map",
    "gallery": "reports.figures.picture_boards:gallery",
    "grad_cam": "reports.figures.picture_boards:grad_cam",
    "interactions": "reports.figures.factors:interactions",
    "plane": "reports.figures.embedding_space:plane",
    "promotions": "reports.figures.ranks:promotions",
    "shapley": "reports.figures.factors:shapley",
    "single_step": "reports.figures.embedding_space:single_step",
    "slices": "reports.figures.search_trials:slices",
    "spectrum": "reports.figures.embedding_space:spectrum",
    "uncertainty": "reports.figures.picture_boards:uncertainty",
}
RULES = {
    "pooled_or_holm": "reports.stats.rules:PooledOrHolm",
    "dunnett_and_t": "reports.stats.rules:DunnettAndT",
    "holm_t": "reports.stats.rules:HolmT",
}
DEFAULT_RULE = "pooled_or_holm"
OWN: dict[Group, dict[str, str]] = {
    "tables": TABLES,
    "figures": FIGURES,
    "rules": RULES,
}


@cache
def list_kinds(group: Group) -> dict[str, EntryPoint]:
    """Return name → entry point of a group's kinds; those of this package come first.

    A kind of another package is left out if this package has one of the same name.
    """
    installed = sorted(entry_points(group=f"ablate.{group}"), key=lambda entry: entry.name)
    own = [EntryPoint(name, target, f"ablate.{group}") for name, target in OWN[group].items()]
    kinds = {entry.name: entry for entry in own}
    for entry in installed:
        kinds.setdefault(entry.name, entry)
    return kinds


@cache
def load_kind(group: Group, kind: str) -> Callable[..., Any]:
    """Import a kind: a function that makes tables or figures, or the class of a rule."""
    loaded: Callable[..., Any] = list_kinds(group)[kind].load()
    return loaded


def find_figure_options(kind: str) -> Any:
    """Return the model of the options of a kind of figure, or None if it declares none."""
    return getattr(load_kind("figures", kind), "options", None)
