"""Priors of axes: how draws are distributed, which samplers use them, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest, norm, truncnorm

from ablate.designs.search import Search
from ablate.search.sampling import SAMPLERS, ObservedTrial, propose
from ablate.search.space import Axis
from tests.ablate import specs
from tests.ablate.driven import run, stopped_often, table
from tests.ablate.search.searches import bowl, driven, study

GUESSES: dict[str, Any] = {
    "x": {"low": -3, "high": 3, "prior": {"guess": 2, "sd": 1.5}},
    "y": {"low": -3, "high": 3},
    "z": {"low": 1e-3, "high": 1e3, "log": True, "prior": {"guess": 0.1, "factor": 5}},
    "n": {"low": 1, "high": 6, "int": True, "prior": {"guess": 2, "sd": 1}},
    "c": {"choice": ["a", True, {"name": "z"}], "prior": {"guess": {"name": "z"}, "share": 0.6}},
}
NUMBERS = {path: GUESSES[path] for path in "xyz"}
RUNNING = ObservedTrial({}, None, running=True)


def limited(low: float, high: float, mean: float, sd: float) -> Any:
    return truncnorm((low - mean) / sd, (high - mean) / sd, mean, sd)


def drawn(made: Search, number: int) -> list[dict[str, Any]]:
    return [propose(made, "key", [RUNNING] * i) for i in range(number)]


@pytest.mark.parametrize("sampler", ["random", "quasi_random"])
def test_draws_are_distributed_as_the_prior_says(sampler: str) -> None:
    points = drawn(study(GUESSES, sampler=sampler), 256)
    factor = limited(-3, 3, -1, math.log10(5))
    distances = [
        kstest([p["x"] for p in points], limited(-3, 3, 2, 1.5).cdf).statistic,
        kstest([math.log10(p["z"]) for p in points], factor.cdf).statistic,
        kstest([p["y"] / 6 + 0.5 for p in points], "uniform").statistic,
    ]
    assert max(distances) < (0.08 if sampler == "random" else 0.02), distances
    whole = limited(0.5, 6.5, 2, 1)
    for n in range(1, 7):
        share = np.mean([p["n"] == n for p in points])
        assert share == pytest.approx(whole.cdf(n + 0.5) - whole.cdf(n - 0.5), abs=0.08)
    for choice, share in (("a", 0.2), (True, 0.2), ({"name": "z"}, 0.6)):
        assert np.mean([p["c"] == choice for p in points]) == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2"])
def test_what_learns_begins_with_the_prior(sampler: str) -> None:
    """The first proposals are the random sampler's; later ones are as without a prior."""
    more = {"population": 6} if sampler == "nsga2" else {"startup": 6}
    made = study(NUMBERS, sampler=sampler, **more)
    history = driven(made, "key", 6, bowl)
    random = study(NUMBERS, sampler="random")
    assert [trial.params for trial in history] == drawn(random, 6)
    blank = {path: {**axis, "prior": None} for path, axis in NUMBERS.items()}
    later = propose(study(blank, sampler=sampler, **more), "key", history)
    assert propose(made, "key", history) == later != propose(random, "key", history)


def test_cmaes_starts_at_the_guess() -> None:
    points = drawn(study(NUMBERS, sampler="cmaes", population=400), 400)
    for path, low, mean, sd in (("x", -3, 2, 1.5), ("y", -3, 0, 1), ("z", -3, -1, math.log10(5))):
        values = [math.log10(p[path]) if path == "z" else p[path] for p in points]
        inside = limited(low, 3, mean, sd)  # it draws again what leaves the axis
        assert np.mean(values) == pytest.approx(inside.mean(), abs=0.2)
        assert np.std(values) == pytest.approx(inside.std(), abs=0.15)


def test_a_sure_guess_at_an_end_and_a_vague_one() -> None:
    sure = Axis(low=0, high=1, prior={"guess": 0, "sd": 1e-5})  # type: ignore[arg-type]
    values = [sure.draw_at(u) for u in (0, 0.5, 1 - 1e-12)]
    assert values[0] == 0 and values[1] == pytest.approx(1e-5 * norm.ppf(0.75))
    assert values[2] < 1e-4
    vague = Axis(low=0, high=1, prior={"guess": 0.5, "sd": 1})  # type: ignore[arg-type]
    assert [vague.draw_at(u) for u in (0, 0.25, 1)] == pytest.approx([0, 0.25, 1], abs=0.01)
    one = Axis(choice=("a",), prior={"guess": "a", "share": 0.5})  # type: ignore[arg-type]
    assert {one.draw_at(u) for u in (0, 0.7, 1)} == {"a"}


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_proposals_repeat_after_interruptions(tmp_path: Path, sampler: str) -> None:
    plan = specs.plan(
        specs.spec(
            studies__tune__sampler=sampler,
            studies__tune__space={
                "optimizer.lr": specs.SPACE["optimizer.lr"]
                | {"prior": {"guess": 1e-3, "factor": 2}},
                "method.alpha": specs.SPACE["method.alpha"] | {"prior": {"guess": 0, "sd": 0.1}},
            },
        ),
        studies=("tune",),
    )
    undisturbed = run(plan, tmp_path / "a")
    stopped, trained = stopped_often(plan, tmp_path / "b", seed=3)
    assert table(stopped) == table(undisturbed) and trained == 6


def test_a_prior_is_part_of_identities_and_its_absence_is_not() -> None:
    def ids(prior: Any) -> tuple[str, str]:
        axis = specs.SPACE["method.alpha"] | prior
        plan = specs.plan(specs.spec(studies__tune__space={"method.alpha": axis}))
        return plan.sweep_id, plan.compute_study_key("tune", [])

    unset, given = ids({}), ids({"prior": {"guess": 0.5, "sd": 0.1}})
    assert ids({"prior": None}) == unset
    assert not set(unset) & set(given)


def test_a_box_around_the_best_replaces_the_guess() -> None:
    axis = specs.SPACE["optimizer.lr"] | {"prior": {"guess": 1e-3, "factor": 2}}
    around = {**specs.SPEC["studies"]["tune"], "space": {}, "around": {"best_of": "tune", "box": 3}}
    content = specs.spec(studies__tune__space={"optimizer.lr": axis}, studies__near=around)
    (near,) = specs.plan(content).spec.studies["near"].sampling().space.values()  # type: ignore[union-attr]
    assert near.box == 3 and near.prior is None


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ({"prior": {"guess": 4, "sd": 1}}, "prior.guess: 4 is outside of this axis"),
        ({"int": True, "prior": {"guess": 1.5, "sd": 1}}, "1.5 is outside"),
        ({"prior": {"guess": True, "sd": 1}}, "true is outside"),
        (
            {"prior": {"guess": 2, "factor": 2}},
            "without `log` takes `guess` and `sd`, not .*factor",
        ),
        ({"log": True, "prior": {"guess": 2, "sd": 2}}, "`log` takes `guess` and `factor`"),
        ({"prior": {"guess": 2, "sd": 1, "share": 0.1}}, "`sd`, not"),
        ({"prior": {"guess": 2}}, "`sd`, not {}"),
        ({"prior": {"guess": 2, "sd": 2.5}}, "prior.sd: 2.5 is above the axis's width"),
        ({"prior": {"guess": 2, "sd": 1e-9}}, "1e-09 is above .* or below a millionth"),
        ({"box": 2, "prior": {"guess": 2, "sd": 1}}, "`prior` and `box` exclude each other"),
        ({"prior": 2}, "prior: the value must be a mapping"),
        ({"prior": {"guess": 2, "sd": "x"}}, "prior.sd: the value must be a number"),
    ],
)
def test_priors_that_do_not_fit(axis: dict[str, Any], message: str) -> None:
    space = {"method.alpha": {"low": 1, "high": 3, **axis}}
    with pytest.raises(ValueError, match=rf"studies.tune.space.method.alpha.*{message}"):
        specs.plan(specs.spec(studies__tune__space=space))


def test_samplers_that_cannot_use_a_prior_name_those_that_can() -> None:
    assert [name for name in SAMPLERS if not SAMPLERS[name].uses_priors] == ["optuna"]
    search = {"sampler": {"name": "optuna", "class": "QMCSampler"}, "space": GUESSES}
    message = "space.x.prior: the sampler optuna cannot use a prior. Remove .* or use tpe or random"
    with pytest.raises(ValueError, match=message):
        study(**search)
