"""What a new spec searches of a method, and which of its terms it switches off.

Ranges as in `search_spaces/`. Of a method that is not listed, one of another package, they follow
from its NEUTRAL: a number that is off at 0 is searched a factor of 30 around its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ablate.plan.fair.neutral import options
from trainables.methods.base import METHODS

Axis = dict[str, Any]
AROUND = 30.0


@dataclass(frozen=True)
class Tuning:
    """given: options of the method that are not its defaults. space: axes by option. terms: name →
    what switches it off, by option."""

    given: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Axis] = field(default_factory=dict)
    terms: dict[str, dict[str, Any]] = field(default_factory=dict)


def _log(low: float, high: float) -> Axis:
    return {"low": low, "high": high, "log": True}


KNOWN = {
    "ddml": Tuning(
        space={"alpha": _log(1e-3, 3.0), "beta": _log(1e-3, 3.0), "gamma": _log(1e-7, 0.1)},
        terms={"agnostic": {"alpha": 0}, "specific": {"beta": 0}, "split": {"gamma": 0}},
    ),
    "detreg": Tuning(
        space={
            "lambda1": _log(1e-3, 0.5),
            "lambda2": _log(1e-3, 0.5),
            "epsilon": {"low": 0.01, "high": 0.8},
        },
        terms={"dueling": {"dueling": False}, "augmentation": {"augmentation": "none"}},
    ),
    "dvml": Tuning(
        given={"samples": 2},
        space={
            "lambda1_phase1": _log(1e-5, 1.0),
            "lambda2_phase2": _log(1e-6, 0.1),
            "lambda3_phase1": _log(0.01, 3.0),
        },
        terms={
            "kl": {"lambda1_phase1": 0, "lambda1_phase2": 0},
            "reconstruction": {"lambda2_phase1": 0, "lambda2_phase2": 0},
            "generated": {"lambda3_phase1": 0, "lambda3_phase2": 0},
        },
    ),
    "idml": Tuning(
        given={"mixing": "feature_mixup"},
        space={"tau": _log(0.5, 50.0), "gamma": {"low": 0.0, "high": 4.0}},
        terms={"mixing": {"mixing": "none"}, "metric": {"metric": "plain"}},
    ),
    "nir": Tuning(space={"omega": _log(1e-3, 1.0)}, terms={"regulariser": {"weight": 0}}),
    "pel": Tuning(
        space={"kl": _log(1e-6, 1e-2)}, terms={"samples": {"samples": 0}, "kl": {"kl": 0}}
    ),
    "plain": Tuning(),
}


def tuning(method: str) -> Tuning:
    """Of any method that is here."""
    if method in KNOWN:
        return KNOWN[method]
    neutral, defaults = options(method), METHODS[method].Config.model_fields
    space, terms = {}, {}
    for name, off in neutral.items():
        default = defaults[name].default
        if default == off:
            continue
        terms[name] = {name: off}
        if isinstance(default, float) and default > 0 and off == 0:
            space[name] = _log(default / AROUND, default * AROUND)
    return Tuning({}, space, terms)
