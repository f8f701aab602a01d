"""Statistics of a table, as pure functions: nothing here reads runs or draws.

Functions that draw random numbers take a seed. Values that are not finite are left out, and an
answer that the data cannot give is None, never a guess; each docstring says when.
"""

from __future__ import annotations

from reports.stats.describe import (
    RESAMPLES,
    Summary,
    bootstrap_interval,
    finite,
    reality_check_interval,
    summary,
    t_interval,
)
from reports.stats.effect_size import (
    Improvement,
    cliffs_delta,
    cohens_dz,
    probability_of_improvement,
    vargha_delaney_a,
)
from reports.stats.factorial import Effect, Fit, factorial
from reports.stats.importance import EVALUATORS, Importances, importances
from reports.stats.paired import (
    Difference,
    holm,
    least_p,
    paired_difference,
    pairs,
    pairs_needed,
    permutation_p,
    wilcoxon_p,
)
from reports.stats.ranks import Correlation, spearman
from reports.stats.shapley import Attribution, attribution, shapley

__all__ = [
    "EVALUATORS",
    "RESAMPLES",
    "Attribution",
    "Correlation",
    "Difference",
    "Effect",
    "Fit",
    "Importances",
    "Improvement",
    "Summary",
    "attribution",
    "bootstrap_interval",
    "cliffs_delta",
    "cohens_dz",
    "factorial",
    "finite",
    "holm",
    "importances",
    "least_p",
    "paired_difference",
    "pairs",
    "pairs_needed",
    "permutation_p",
    "probability_of_improvement",
    "reality_check_interval",
    "shapley",
    "spearman",
    "summary",
    "t_interval",
    "vargha_delaney_a",
    "wilcoxon_p",
]
