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
        "components": "reports.tables.comparison:compared",
        "compare": "reports.tables.comparison:compared",
        "search": "reports.tables.search_results:searched",
        "effects": "reports.tables.effects:effects",
        "importance": "reports.tables.importance:importance",
        "promoted": "reports.tables.promotion:promoted",
    },
)
FIGURES: Registry[Callable[..., Any]] = Registry(
    "figures",
    index={
        kind: f"reports.figures.{kind}:{kind}"
        for kind in (
            *("affinity", "class_sizes", "cost", "critical_difference", "distances"),
            *("embedding_map", "gallery", "grad_cam", "interactions", "plane", "promotions"),
            *("shapley", "single_step", "slices", "spectrum", "uncertainty"),
        )
    },
)
RULES: Registry[Callable[[], Any]] = Registry(
    "rules",
    index={
        "pooled_or_holm": "reports.stats.rules.pooled_or_holm:PooledOrHolm",
        "dunnett_and_t": "reports.stats.rules.dunnett_and_t:DunnettAndT",
        "holm_t": "reports.stats.rules.holm_t:HolmT",
    },
)
DEFAULT_RULE = "pooled_or_holm"


def find_figure_options(kind: str) -> Any:
    """Return the model of the options of a kind of figure, or None if it declares none."""
    return getattr(FIGURES[kind], "options", None)
