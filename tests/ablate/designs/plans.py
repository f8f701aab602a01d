"""A plan of studies, and two-level designs of so many factors, for tests of designs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ablate.designs.factorial import Factorial
from tests.ablate import specs

DDML = {"method": {"name": "ddml"}}


def plan(**studies: dict[str, Any]) -> Any:
    return specs.plan({"name": "x", "trial": DDML, "studies": studies})


def factorial(count: int, **more: Any) -> Factorial:
    factors = {letter: ["-", "+"] for letter in "ABCDEFGHIJKLMNOPQRSTUVW"[:count]}
    return Factorial.model_validate({"design": "factorial", "factors": factors, **more})


def signs(study: Factorial) -> np.ndarray:
    return np.array([[1 if v == "+" else -1 for v in p.coords.values()] for p in study.all_points])


CROSS: dict[str, Any] = {
    "design": "compare",
    "cross": {
        "method": {
            "plain": {"trial": {"method": {"name": "plain"}}},
            "ddml": {"trial": {"method": {"name": "ddml"}}},
        },
        "loss": {
            "ns": {"trial": {"loss": {"name": "normsoftmax"}}},
            "pa": {"trial": {"loss": {"name": "proxy_anchor"}}},
        },
        "data": {
            "typefaces": {"trial": {"data.name": "typefaces"}},
            "emoji": {"trial": {"data.name": "emoji"}},
        },
    },
}
