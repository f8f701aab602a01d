"""Small specs and plans that the tests of this folder share."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from tests.ablate import synthetic

SPACE: dict[str, Any] = {
    "optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "method.alpha": {"low": 0, "high": 1},
}
SPEC: dict[str, Any] = {
    "name": "small",
    "seeds": 2,
    "trial": {"training": {"epochs": 3}, "method": {"name": "ddml"}},
    "studies": {
        "tune": {
            "design": "search",
            "trials": 6,
            "round": 3,
            "startup": 3,
            "seeds": 1,
            "space": SPACE,
        },
        "parts": {
            "design": "components",
            "around": {"best_of": "tune"},
            "components": {"agnostic": {"method.alpha": 0}, "specific": {"method.beta": 0}},
            "evaluate": ["val", "test"],
        },
        "grid": {"design": "grid", "grid": {"method.beta": [0.1, 1], "method.gamma": [0, 1e-3]}},
        "rows": {
            "design": "compare",
            "variants": {
                "base": {
                    "around": {"best_of": "tune", "take": ["optimizer.lr"]},
                    "trial": {"method": {"name": "plain"}},
                },
                "ddml": {"around": {"best_of": "tune"}},
            },
        },
    },
}

TINY: dict[str, Any] = {  # two trials on embedded images, with untrained weights
    "name": "tiny",
    "seeds": 1,
    "trial": {
        "data": {"name": "digits", "image_size": 32},
        "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "frozen"},
        "training": {"epochs": 1, "batch_size": 48, "per_class": 16},
    },
    "studies": {"rates": {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}},
}


def spec(**changes: Any) -> dict[str, Any]:
    """SPEC with dotted changes; a change to None removes (`studies__tune__trials=3`)."""
    changed = copy.deepcopy(SPEC)
    for key, value in changes.items():
        *parents, last = key.split("__")
        level = changed
        for parent in parents:
            level = level.setdefault(parent, {})
        if value is None:
            level.pop(last, None)
        else:
            level[last] = value
    return changed


def plan(content: dict[str, Any] | None = None, **overrides: Any) -> Plan:
    return build_checked_plan(
        read_spec(SPEC if content is None else content),
        Overrides(**overrides),
        synthetic.fingerprint,
        Path("unused"),
    )
