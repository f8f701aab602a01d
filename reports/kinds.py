"""List the kinds of tables, figures and comparison rules of this and other packages.

Each is an entry point, `name = module:function`. Other packages use the groups `ablate.tables`,
`ablate.figures` and `ablate.rules`. A table's function takes (Frame, recipe.Table, the study's
cells) and returns a `tables.model.Sheet`. A figure is a `figures.figure.FigureKind`, which knows
its options, or a function of (Frame, recipe.Figure) that returns a `DrawnFigure`. Names are listed
without importing their modules, which keeps plans fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["tables", "figures", "rules"]

TABLES = {
    "components": "comparison:compared",
    "compare": "comparison:compared",
    "search": "search_results:searched",
    "effects": "effects:effects",
    "importance": "importance:importance",
    "promoted": "promotion:promoted",
}
NAMES = (
    *("affinity", "class_sizes", "cost", "critical_difference", "distances", "embedding_map"),
    *("gallery", "grad_cam", "importance", "interactions", "parallel", "plane", "promotions"),
    *("shapley", "single_step", "slices", "spectrum", "uncertainty"),
)
FIGURES = {kind: f"{kind}:{kind}" for kind in NAMES}
RULES = {
    "dunnett_and_t": "dunnett_and_t:DunnettAndT",
    "holm_t": "holm_t:HolmT",
    "permutation": "permutation:Permutation",
}
OWN: dict[Group, dict[str, str]] = {"tables": TABLES, "figures": FIGURES, "rules": RULES}
FOLDERS: dict[Group, str] = {
    "tables": "reports.tables",
    "figures": "reports.figures",
    "rules": "reports.stats.rules",
}


@cache
def list_kinds(group: Group) -> dict[str, EntryPoint]:
    """Return all kinds by name, this package's first."""
    installed = sorted(entry_points(group=f"ablate.{group}"), key=lambda entry: entry.name)
    own_kinds = {
        name: EntryPoint(name, f"{FOLDERS[group]}.{target}", f"ablate.{group}")
        for name, target in OWN[group].items()
    }
    return own_kinds | {entry.name: entry for entry in installed if entry.name not in own_kinds}


@cache
def load_kind(group: Group, kind: str) -> Callable[..., Any]:
    """Import a kind: a function that makes tables or figures, or the class of a rule."""
    function: Callable[..., Any] = list_kinds(group)[kind].load()
    return function


def find_figure_options(kind: str) -> Any:
    """Return the model of the options of a kind of figure, or None if it declares none."""
    return getattr(load_kind("figures", kind), "options", None)
