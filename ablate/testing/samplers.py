"""What every sampler must do:

    from ablate.testing import samplers

    def test_my_sampler() -> None:
        samplers.check("my_sampler")

A proposal is a function of the search's key, its number and the results before it, and of nothing
else; it holds the active axes alone, each with a value that its axis has. What failed or still runs
does not stop it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ablate.designs.search import Search
from ablate.samplers import branches
from ablate.samplers.history import ObservedTrial
from ablate.samplers.sampling import propose
from ablate.samplers.space import Axis
from ablate.values.canonical import to_canonical_json
from trainables.errors import ConfigError

# One of each kind, and two that exist only where another has a certain value.
SPACE: dict[str, Any] = {
    "x": {"low": -1, "high": 2},
    "y": {"low": 1e-3, "high": 10, "log": True},
    "n": {"low": 1, "high": 9, "int": True},
    "c": {"choice": ["a", [1, 2], {"name": "z"}]},
    "c.w": {"low": 0, "high": 1, "step": 0.25, "when": {"c.name": "z"}},
    "v": {"low": 0, "high": 1, "when": {"c": "a"}},
}
NUMBERS: dict[str, Any] = {path: SPACE[path] for path in ("x", "y", "n")}
KEY = "0123456789abcdef"


def check(sampler: str, *, space: Mapping[str, Any] | None = None, proposals: int = 12) -> None:
    """Make all checks of a sampler.

    Args:
        space: for a sampler that cannot take any space; `SPACE` where it takes that, else numbers.
    """
    try:
        study = _search(sampler, SPACE if space is None else space)
    except (ValueError, ConfigError):  # refuses choices or conditions
        if space is not None:
            raise
        study = _search(sampler, NUMBERS)
    earlier: list[ObservedTrial] = []
    for index in range(proposals):
        params = propose(study, KEY, earlier)
        assert params == propose(study, KEY, list(earlier)), "asked again it proposes other values"
        _check_params(study.space, params)
        value = None if index == 4 else -abs(float(params.get("x", 0)))
        beside = tuple(range(index // 3 * 3, index))
        running = index >= proposals - 3
        earlier.append(ObservedTrial(params, value, running=running, beside=beside))
    distinct = {to_canonical_json(trial.params) for trial in earlier}
    assert len(distinct) >= proposals - 2, f"{proposals - len(distinct)} proposals twice"
    assert propose(study, KEY, earlier) != propose(study, KEY[::-1], earlier), "the key is not used"


def _search(sampler: str, space: Mapping[str, Any]) -> Search:
    design = {"design": "search", "sampler": sampler, "trials": 1000, "round": 3, "startup": 4}
    return Search.model_validate(design | {"space": space})


def _check_params(space: Mapping[str, Axis], params: Mapping[str, Any]) -> None:
    """Check for the active axes in the order of the space, each with one of its values."""
    active = branches.drop_inactive(dict(space), {path: params.get(path) for path in space})
    assert list(params) == list(active), f"{list(params)}, not the active axes {list(active)}"
    for path, value in params.items():
        axis = space[path]
        if axis.choice is not None:
            assert to_canonical_json(value) in map(to_canonical_json, axis.choice), (
                f"{path}: {value!r}"
            )
            continue
        assert axis.low is not None and axis.high is not None
        assert axis.low <= value <= axis.high, f"{path}: {value!r} is outside the axis"
        assert isinstance(value, int if axis.whole else float), f"{path}: {type(value).__name__}"
        if axis.step is not None:
            steps = (value - axis.low) / axis.step
            assert math.isclose(steps, round(steps), abs_tol=1e-9), f"{path}: {value!r} is no step"
