"""Hyperband: successive halving that begins to stop cells earlier in some rounds than in others.

Source: Li et al., "Hyperband", JMLR 2018, Algorithm 1.
"""

from __future__ import annotations

from typing import Literal

from ablate.schedulers.base import SCHEDULERS
from ablate.schedulers.halving import Halving


@SCHEDULERS.register("hyperband")
class Hyperband(Halving):
    """Successive halving whose rounds take turns in how early they begin to stop cells: from
    `grace` epochs on, from factor · grace, …, and at last not at all."""

    name: Literal["hyperband"] = "hyperband"

    def steps(self, epochs: int, bracket: int) -> list[int]:
        every = super().steps(epochs, bracket)
        return every[bracket % len(every) :]
