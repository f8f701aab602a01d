"""Samplers, branches, objectives: each proposal a pure function of what was told."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from cmaes import CMA
from scipy.stats import qmc

from ablate.search.optuna_samplers import POPULATION
from ablate.search.sampling import ObservedTrial, assign_generations, draw_seed, propose
from ablate.search.space import Axis
from ablate.search.unit_cube import SIGMA
from tests.ablate.search.searches import CUBE, NUMBERS, bowl, driven, study

# --------------------------------------------------------------------------- axes


@pytest.mark.parametrize(
    "given",
    [
        *CUBE.values(),
        {"low": 0, "high": 1, "step": 0.25},
        {"low": 2, "high": 200, "int": True, "log": True},
        {"low": 3, "high": 20, "int": True, "step": 4},
    ],
    ids=str,
)
def test_the_unit_interval_maps_onto_an_axis(given: dict[str, Any]) -> None:
    axis = Axis.model_validate(given)
    values = [axis.value_at(i / 997) for i in range(997)]
    for value in values:
        assert axis.to_optuna_distribution()._contains(
            axis.to_optuna_distribution().to_internal_repr(axis.to_optuna(value))
        )
        assert (
            axis.value_at(axis.locate_value(value)) == pytest.approx(value)
            if not isinstance(value, str | list | dict)
            else axis.value_at(axis.locate_value(value)) == value
        )
    if axis.choice is None:
        assert values == sorted(values)
        assert values[0] == pytest.approx(axis.low) and values[-1] <= axis.high + 1e-9
    if axis.count_levels() is not None:
        counts = np.unique([axis.locate_value(value) for value in values], return_counts=True)[1]
        assert len(counts) == axis.count_levels() and counts.max() - counts.min() <= 1, "uniform"


def test_a_choice_of_true_is_not_that_of_one() -> None:
    axis = Axis.model_validate({"choice": [1, True, 1.5, "1"]})
    assert [axis.to_optuna(value) for value in (1, True, 1.5, "1")] == [0, 1, 2, 3]


# ---------------------------------------------------------------- against the libraries


def test_tpe_and_random_are_optunas_own() -> None:
    """What one sees with Optuna alone, seeded alike and told alike."""
    space = {path: Axis.model_validate(node) for path, node in NUMBERS.items()}
    distributions = {path: axis.to_optuna_distribution() for path, axis in space.items()}
    for sampler in ("tpe", "random"):
        told: list[ObservedTrial] = []
        for i in range(12):
            drawn = draw_seed("key", i)
            theirs = optuna.create_study(
                direction="maximize",
                sampler=optuna.samplers.RandomSampler(seed=drawn)
                if sampler == "random"
                else optuna.samplers.TPESampler(
                    seed=drawn, n_startup_trials=5, multivariate=True, constant_liar=True
                ),
            )
            for t in told:
                theirs.add_trial(
                    optuna.create_trial(params=t.params, distributions=distributions, value=t.value)
                )
            params = propose(study(NUMBERS, sampler=sampler), "key", told)
            assert params == theirs.ask(fixed_distributions=distributions).params
            told.append(ObservedTrial(params, bowl(params)))


def test_quasi_random_is_scipys_scrambled_sobol_sequence() -> None:
    made = study(NUMBERS, sampler="quasi_random")
    found = [propose(made, "key", [ObservedTrial({}, None)] * i) for i in range(64)]
    points = qmc.Sobol(3, scramble=True, rng=draw_seed("key", 0)).random(64)
    assert np.allclose([p["x"] for p in found], -3 + 6 * points[:, 0])
    assert np.allclose([math.log10(p["z"]) for p in found], -3 + 6 * points[:, 2])
    places = np.array([[made.space[k].locate_value(p[k]) for k in NUMBERS] for p in found])
    draws = np.random.default_rng(0).random((100, 64, 3))
    assert qmc.discrepancy(places) < min(qmc.discrepancy(draw) for draw in draws)


def test_cmaes_tells_each_generation_to_the_package() -> None:
    """By hand: ask one generation, tell it, ask the next one."""
    made = study(NUMBERS, sampler="cmaes", round=7)
    told = driven(made, "key", 28, bowl)
    theirs = CMA(
        mean=np.full(3, 0.5),
        sigma=SIGMA,
        bounds=np.array([[0.0, 1.0]] * 3),
        population_size=7,
        seed=draw_seed("key", 0),
        n_max_resampling=30,
    )
    for generation in range(4):
        mine = told[7 * generation : 7 * generation + 7]
        for i, t in enumerate(mine):
            theirs.reseed_rng(draw_seed("key", 7 * generation + i))
            asked = theirs.ask()
            assert [
                made.space[k].value_at(float(u)) for k, u in zip(NUMBERS, asked, strict=True)
            ] == (list(t.params.values()))
        places = [
            np.array([made.space[k].locate_value(t.params[k]) for k in NUMBERS]) for t in mine
        ]
        theirs.tell([(p, -float(t.value or 0)) for p, t in zip(places, mine, strict=True)])


def test_generations_count_what_was_known_when_a_proposal_was_made() -> None:
    done = [ObservedTrial({}, 1.0, concurrent=(*range(i // 4 * 4, i),)) for i in range(12)]
    always: Callable[[ObservedTrial], bool] = lambda told: True  # noqa: E731
    # Rounds of 4, generations of 3: the round that fills one is still of it.
    assert assign_generations(3, done, always) == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    # Generations of 6 end within round 1, whose proposals could not know.
    assert assign_generations(6, done, always) == [0] * 8 + [1] * 4 + [1]
    # Failures that do not count leave a generation unfilled.
    some = [*done[:3], ObservedTrial({}, None, concurrent=(0, 1, 2)), *done[4:]]
    assert assign_generations(4, some, lambda told: told.value is not None)[4:8] == [0] * 4
    # Asynchronous: number 3 did not know number 1, number 4 did.
    late = [ObservedTrial({}, 1.0, concurrent=(1,) if i == 3 else ()) for i in range(5)]
    assert assign_generations(3, late, always) == [0, 0, 0, 0, 1, 1]
    running = [*late[:4], ObservedTrial({}, None, running=True)]
    assert assign_generations(3, running, always) == [0, 0, 0, 0, 1, 1]


def test_nsga2_breeds_from_its_parents() -> None:
    """After a full generation the children keep genes of the fittest."""
    made = study(NUMBERS, sampler="nsga2", objectives=["val/map_at_r", "val/recall_at_1"])

    def value(params: dict[str, Any]) -> tuple[float, float]:
        return -abs(params["x"] - 1), -abs(params["y"] - 1)

    told = driven(made, "key", 3 * POPULATION, value)
    genes = [{t.params["x"] for t in told[a : a + POPULATION]} for a in (0, 20, 40)]
    assert len(genes[0]) == POPULATION
    assert len(genes[1] & genes[0]) >= 5 and len(genes[2] & (genes[0] | genes[1])) >= 5
    means = [np.mean([sum(value(t.params)) for t in told[a : a + 20]]) for a in (0, 40)]
    assert means[1] > means[0]


# ---------------------------------------------------------------------- objectives
