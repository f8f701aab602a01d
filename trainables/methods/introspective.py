"""The introspective similarity metric: a plain score, weakened where a pair is uncertain.

Shape legend: B queries · R references · D, U sizes of the semantic and uncertainty embedding ·
`...` leading dimensions.

With α the semantic distance and β the uncertainty of a pair (IDML, Eq. 5, 6, 8, 19, 20):

    r    = (β + γ) / α                              relative uncertainty
    D_IN = α · e^{−r/τ}                             Eq. 6, of distances
    C_IN = 1 − (1 − C) · e^{−r/τ}                   Eq. 8 and 19, of cosines: "ism_sim"
    C_IN = C · e^{−r/τ}                             Eq. 20, of cosines: "ism_dis"
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trainables.errors import ConfigError
from trainables.losses.base import Geometry
from trainables.losses.geometry import safe_sqrt, squared_distance

# Least α that r divides by. Below it `safe_sqrt` gives α = 0 with gradient 0 and e^{−r/τ} is
# taken at this α: Eq. 6 and 8 vanish there all the same, and nothing is 0/0.
CLOSEST = 1e-6


def semantic_distance(score: Tensor, geometry: Geometry) -> Tensor:
    """Return α [..., B, R], the un-squared Euclidean distance behind a plain score.

    Of cosines, α = √(2 − 2C): the distance of the two directions.

    Raises:
        ConfigError: a geometry whose score tells no such distance.
    """
    if geometry.kind == "l2":
        return -score
    if geometry.kind == "l2sq":
        return safe_sqrt(-score)
    if is_cosine(geometry):
        return safe_sqrt((2 - 2 * score).clamp_min(0))
    raise ConfigError(
        "loss.geometry",
        f"the introspective metric has no form for {geometry.kind!r}. Take a loss of cosines or "
        "Euclidean distances.",
    )


def is_cosine(geometry: Geometry) -> bool:
    return geometry.kind == "cosine" or (geometry.kind == "dot" and geometry.normalize)


def pair_uncertainty_squared(query: Tensor, reference: Tensor) -> Tensor:
    """Return β² = ‖u_q + u_r‖² [..., B, R] of u_q [..., B, U] and u_r [..., R, U]."""
    return squared_distance(query, -reference)


def introspective_score(
    score: Tensor, exponent: Tensor, geometry: Geometry, form: Literal["ism_sim", "ism_dis"]
) -> Tensor:
    """Return the introspective score [..., B, R], larger is closer.

    Args:
        score: the plain one, by `geometry`: −α is D_IN's place, C that of C_IN; −α² becomes −D_IN².
        exponent: −r/τ.
        form: of cosines; distances have Eq. 6 alone.

    "ism_sim" is computed as C − (1 − C)(e^{−r/τ} − 1), equal to Eq. 8, which for r = 0 is C to
    the last bit.
    """
    if geometry.kind == "l2":
        return score * exponent.exp()
    if geometry.kind == "l2sq":
        return score * (2 * exponent).exp()
    if form == "ism_sim":
        return score - (1 - score) * torch.expm1(exponent)
    return score * exponent.exp()
