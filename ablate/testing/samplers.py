"""Check that a sampler satisfies its interface:

    from ablate.testing import samplers

    def test_my_sampler() -> None:
        samplers.check("my_sampler")

A proposal depends only on the search's key, its number and the earlier results, some of which are
failed or running. It holds only active axes, with values of these axes.
"""

from collections.abc import Mapping
from typing import Any

from ablate.designs.search import Search
from ablate.search.sampling import ObservedTrial, propose
from ablate.search.space import Axis, drop_inactive
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError

# One axis of each kind, and two that are active only with certain values of another.
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


def check(sampler: str | Mapping[str, Any], *, proposals: int = 12) -> None:
    """Run all checks of a sampler on a number of proposals.

    Args:
        sampler: its name, or the mapping that `sampler` of a search takes.
        proposals: number of proposals to make.
    """
    # build a search, without choices and conditions if the sampler refuses them
    try:
        study = _build_search(sampler, SPACE)
    except (ValueError, ConfigError):
        study = _build_search(sampler, NUMBERS)
    # make proposals in rounds of three: the one with index 4 fails, the last three still run
    earlier: list[ObservedTrial] = []
    for index in range(proposals):
        params = propose(study, KEY, earlier)
        assert params == propose(study, KEY, list(earlier)), "the proposal is not reproducible"
        _check_params(study.space, params)
        value = None if index == 4 else -abs(float(params.get("x", 0)))
        concurrent = tuple(range(index // 3 * 3, index))
        running = index >= proposals - 3
        earlier.append(ObservedTrial(params, value, running=running, concurrent=concurrent))
    # check that proposals differ, also between keys
    distinct = {to_canonical_json(trial.params) for trial in earlier}
    assert len(distinct) >= proposals - 2, f"{proposals - len(distinct)} proposals are repeated"
    assert propose(study, KEY, earlier) != propose(study, KEY[::-1], earlier), "the key is not used"


def _build_search(sampler: str | Mapping[str, Any], space: Mapping[str, Any]) -> Search:
    design = {"design": "search", "sampler": sampler, "trials": 1000, "round": 3, "startup": 4}
    return Search.model_validate(design | {"space": space})


def _check_params(space: Mapping[str, Axis], params: Mapping[str, Any]) -> None:
    """Check that a proposal has a possible value for each active axis, in order, and no others.

    An axis is active unless its `when` does not hold.
    """
    active = drop_inactive(dict(space), {path: params.get(path) for path in space})
    assert list(params) == list(active), f"{list(params)} are not the axes {list(active)}"
    for path, value in params.items():
        axis = space[path]
        assert axis.is_possible(value), f"{path}: {value!r} is no value of the axis"
        number = int if axis.whole else float
        is_number = axis.choice is not None or isinstance(value, number)
        assert is_number, f"{path}: {value!r} must be of type {number.__name__}"
