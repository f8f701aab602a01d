"""Components of training and search have examples in their docstrings that give what they show.

Examples use a few names without importing them: those of `NAMES`.
"""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ablate.designs.base import DESIGNS
from ablate.designs.search import Search
from ablate.search.sampling import SAMPLERS
from ablate.search.scheduling import SCHEDULERS, LearningCurve
from ablate.testing.methods import build_seeded_method, draw_features
from trainables.losses.base import LOSSES, make_pairs
from trainables.methods.base import METHODS, Method, Progress
from trainables.methods.flow import Flow


def list_term_weights(method: Method) -> dict[str, Any]:
    """Return the weight of each term of a training step on four images of two classes."""
    labels, draws = torch.tensor([[0], [0], [1], [1]]), torch.Generator()
    state = method(draw_features(4), labels, Progress(), draws)
    terms = method.terms(state, labels, Progress(), draws)
    return {name: term.weight for name, term in terms.items()}


NAMES = {
    **{"torch": torch, "make_pairs": make_pairs, "Search": Search, "LearningCurve": LearningCurve},
    **{"build_seeded_method": build_seeded_method, "list_term_weights": list_term_weights},
}


def list_components() -> Iterator[Any]:
    yield Flow
    yield from (SAMPLERS["tpe"], SAMPLERS["optuna"])  # the others are used in the same way
    for registry in (LOSSES, METHODS, SCHEDULERS, DESIGNS):
        yield from (registry[name] for name in registry)


@pytest.mark.parametrize("component", [*list_components()], ids=lambda each: each.__name__)
def test_the_example_of_a_component_runs(component: Any) -> None:
    names = {**NAMES, **vars(sys.modules[component.__module__])}
    (example,) = doctest.DocTestFinder(recurse=False).find(component, globs=names)
    assert example.examples, f"{component.__name__} has no example in its docstring"
    assert doctest.DocTestRunner().run(example).failed == 0
