"""List the kinds of tables, figures and comparison rules of this and other packages.

Other packages use the entry points `ablate.tables`, `ablate.figures` and `ablate.rules`. A table's
function takes (Frame, recipe.Table, the study's cells) and returns a `tables.model.Sheet`. A figure
is a `figures.figure.FigureKind`, which has options, or a function of (Frame, recipe.Figure) that
returns a `DrawnFigure`. Names are listed without importing their modules, which keeps plans fast.
"""

from collections.abc import Callable
from typing import Any

from trainables.words.registry import Registry

TABLES: Registry[Callable[..., Any]] = Registry(
    "tables",
    index={
        "components": "reports.tables.comparison:compare_cells",
        "compare": "reports.tables.comparison:compare_cells",
        "search": "reports.tables.search:list_best_trials",
        "effects": "reports.tables.effects:estimate_effects",
        "importance": "reports.tables.search:estimate_importances",
        "promoted": "reports.tables.search:list_promoted_cells",
    },
)
FIGURES: Registry[Callable[..., Any]] = Registry(
    "figures",
    index={
        "affinity": "reports.figures.embedding_space:affinity",
        "class_sizes": "reports.figures.embedding_space:class_sizes",
        "cost": "reports.figures.cost:cost",
        "curves": "reports.figures.curves:curves",
        "critical_difference": "reports.figures.ranks:critical_difference",
        "distances": "reports.figures.embedding_space:distances",
        "embedding_map": "reports.figures.embedding_space:embedding_map",
        "factor_curves": "reports.figures.factors:factor_curves",
        "gallery": "reports.figures.picture_boards:gallery",
        "grad_cam": "reports.figures.picture_boards:grad_cam",
        "heatmap": "reports.figures.heatmap:heatmap",
        "history": "reports.figures.search_trials:history",
        "interactions": "reports.figures.factors:interactions",
        "plane": "reports.figures.embedding_space:plane",
        "promotions": "reports.figures.ranks:promotions",
        "shapley": "reports.figures.factors:shapley",
        "single_step": "reports.figures.embedding_space:single_step",
        "slices": "reports.figures.search_trials:slices",
        "spectrum": "reports.figures.embedding_space:spectrum",
        "uncertainty": "reports.figures.picture_boards:uncertainty",
    },
)
RULES: Registry[Callable[[], Any]] = Registry(
    "rules",
    index={
        "pooled_or_holm": "reports.stats.rules:PooledOrHolm",
        "dunnett_and_t": "reports.stats.rules:DunnettAndT",
        "holm_t": "reports.stats.rules:HolmT",
    },
)
DEFAULT_RULE = "pooled_or_holm"


def find_figure_options(kind: str) -> Any:
    """Return the model of the options of a kind of figure, or None if it declares none."""
    return getattr(FIGURES[kind], "options", None)
