"""Seeds by precision: a first stage decides once how many seeds a study's rows get."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ablate.designs.base import SPLIT_SHIFT
from ablate.ledger.queries import list_looks
from ablate.plan.plan import Plan
from ablate.plan.warnings import describe_precision
from ablate.spec.checks import find_baseline_index
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain, finish, table

FIRST, MOST = 4, 30


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give each trial a scatter of its own; the list holds its standard deviation."""
    scatter = [0.01]

    def score(config: dict[str, Any], seed: int) -> float:
        draw = np.random.default_rng([seed, config["embedding"]["dim"]]).normal()
        return float(0.5 + scatter[0] * draw)

    monkeypatch.setattr(synthetic, "score", score)
    return scatter


def staged(looks: int | None = None, **seeds: Any) -> Plan:
    given = specs.spec()
    variants = {f"dim{dim}": {"trial": {"embedding.dim": dim}} for dim in (16, 32)}
    given["studies"] = {
        "rows": {
            "design": "compare",
            "seeds": {"first": FIRST, "at_most": MOST, **seeds},
            "tuning": "as_published",
            "evaluate": ["val", "test"],
            "variants": variants,
        }
    }
    given["report"] = {
        "tables": [{"kind": "compare", "study": "rows", "metrics": ["test/map_at_r"]}],
        "looks": looks,
    }
    return specs.plan(given)


@pytest.mark.parametrize("baseline", ["dim32", {"variant": "dim32"}])
def test_the_baseline_is_that_of_the_table(baseline: Any) -> None:
    """By name or by coordinates; the first cell without one."""
    spec = staged().spec
    assert find_baseline_index(spec.report, "rows", spec.studies["rows"]) == 0
    given = spec.model_dump(by_alias=True, exclude_defaults=True)
    given["report"]["tables"][0]["baseline"] = baseline
    spec = specs.plan(given).spec
    assert find_baseline_index(spec.report, "rows", spec.studies["rows"]) == 1


def count_seeds(folder: Path, plan: Plan) -> dict[str, set[int]]:
    made = dispatch(plan, folder)
    drain(made)
    seeds: dict[str, set[int]] = {}
    for row in table(made):
        seeds.setdefault(row["cell"], set()).add(row["seed"] % SPLIT_SHIFT)
    return seeds


def expect_seeds(folder: Path, half_width: float, level: float = 0.95) -> int:
    """Stein's number, from the first stage's recorded differences."""
    rows = [row for row in table(dispatch(staged(), folder)) if row["seed"] < FIRST]
    values = {(row["cell"], row["seed"]): row["test/map_at_r"] for row in rows}
    gaps = [values["dim32", seed] - values["dim16", seed] for seed in range(FIRST)]
    half = stats.t.ppf((1 + level) / 2, FIRST - 1) * stats.sem(gaps)
    return min(MOST, max(FIRST, math.ceil(FIRST * (half / half_width) ** 2)))


@pytest.mark.parametrize(("precision", "bound"), [(1.0, False), (100.0, True), (0.01, True)])
def test_all_rows_get_the_number_that_the_first_stage_asks_for(
    tmp_path: Path, noisy: list[float], precision: float, bound: bool
) -> None:
    seeds = count_seeds(tmp_path, staged(precision=precision))
    n = expect_seeds(tmp_path, precision / 100)
    assert seeds == {"dim16": {*range(n)}, "dim32": {*range(n)}}
    assert (n in (FIRST, MOST)) == bound


def test_planned_looks_which_lengthen_intervals_get_seeds_for_it(
    tmp_path: Path, noisy: list[float]
) -> None:
    n = len(count_seeds(tmp_path, staged(looks=2, precision=1.5))["dim16"])
    assert n == expect_seeds(tmp_path, 0.015, level=0.975) > expect_seeds(tmp_path, 0.015)
    assert n < MOST


def test_a_stopped_run_ends_with_the_same_seeds(tmp_path: Path, noisy: list[float]) -> None:
    whole = count_seeds(tmp_path / "a", staged(precision=1.0))
    stopped = dispatch(staged(precision=1.0), tmp_path / "b")
    for _ in range(2 * FIRST + 3):
        job = stopped.claim_next_job()
        assert job is not None
        finish(stopped, job.trial_id)
    assert count_seeds(tmp_path / "b", staged(precision=1.0)) == whole


def test_without_a_number_the_smallest_effect_decides(tmp_path: Path, noisy: list[float]) -> None:
    noisy[0] = 0.003
    n = len(count_seeds(tmp_path, staged())["dim16"])
    assert n == expect_seeds(tmp_path, 0.8 * 0.003) and FIRST < n < MOST
    (line,) = describe_precision(staged(), "rows")
    assert line.startswith(f"{FIRST} seeds first") and "±0.24 (MAP@R), at most 30" in line


def test_the_power_of_a_table_is_that_of_its_splits() -> None:
    given = staged().loaded.spec.model_dump(by_alias=True, exclude_defaults=True)
    given["studies"]["rows"] |= {"seeds": 2, "splits": 5}
    (line,) = describe_precision(specs.plan(given), "rows", sd=0.01)
    given["studies"]["rows"] |= {"seeds": 5, "splits": None}
    (of_seeds,) = describe_precision(specs.plan(given), "rows")
    assert line == of_seeds.replace("5 seeds", "5 splits").replace("of a run", "of a split")
    given["report"]["tables"][0]["blocks"] = "classes"
    (of_classes,) = describe_precision(specs.plan(given), "rows")
    assert of_classes.startswith(of_seeds) and "for further ones, classes" in of_classes


def test_listed_seeds_and_searches_are_not_staged() -> None:
    given = specs.spec(seeds={"precision": 0.5})
    del given["studies"]["tune"]["seeds"]
    plan = specs.plan(given)
    assert plan.list_seeds("tune") == plan.list_seeds("grid") == [*range(5)]
    assert staged().list_seeds("rows") == [*range(MOST)]


def divide(monkeypatch: pytest.MonkeyPatch, *, split_sd: float, seed_sd: float) -> Plan:
    """Plan rows over five splits, whose interaction with the rows and training noise are given."""

    def score(config: dict[str, Any], seed: int) -> float:
        part, dim = config["data"]["split"]["part"], config["embedding"]["dim"]
        of_split = np.random.default_rng([part, dim]).normal()
        of_seed = np.random.default_rng([part, dim, seed]).normal()
        return float(0.5 + split_sd * of_split + seed_sd * of_seed)

    monkeypatch.setattr(synthetic, "score", score)
    given = staged(precision=1.0, first=2).loaded.spec.model_dump(
        by_alias=True, exclude_defaults=True
    )
    given["studies"]["rows"]["splits"] = 5
    return specs.plan(given)


def test_seeds_a_split_follow_from_the_components_of_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise of training asks for more seeds; a long part of split × method, for none."""
    plan = divide(monkeypatch, split_sd=0.0, seed_sd=0.007)
    made = dispatch(plan, tmp_path / "a")
    drain(made)
    trained = {(row["cell"], row["fold"], row["seed"]) for row in table(made)}
    seeds = {seed for _, fold, seed in trained if fold == 0}
    assert 2 < len(seeds) < MOST and seeds == {*range(len(seeds))}
    assert len(trained) == 2 * 5 * len(seeds) == made.progression.studies["rows"].size
    stopped = dispatch(plan, tmp_path / "b")
    for _ in range(7):
        job = stopped.claim_next_job()
        assert job is not None
        finish(stopped, job.trial_id)
    resumed = dispatch(plan, tmp_path / "b")
    drain(resumed)
    assert [*table(resumed)] == [*table(made)]
    hopeless = divide(monkeypatch, split_sd=0.05, seed_sd=0.001)
    assert count_seeds(tmp_path / "c", hopeless)["dim16"] == {0, 1}
    exact = divide(monkeypatch, split_sd=0.0, seed_sd=0.0001)
    assert count_seeds(tmp_path / "d", exact)["dim16"] == {0, 1}
    (line,) = describe_precision(plan, "rows")
    assert line.startswith("2 seeds a split first, then")
    assert "first_stage" not in plan.resolve_spec()["studies"]["rows"]


@pytest.mark.usefixtures("noisy")
def test_the_first_stage_is_no_look_at_verdicts(tmp_path: Path) -> None:
    scheduler = dispatch(staged(precision=1e-6, at_most=6), tmp_path)
    while (job := scheduler.claim_next_job()) is not None:
        finish(scheduler, job.trial_id)
        scheduler.progression.record_looks()
    looks = list_looks(scheduler.ledger, scheduler.sweep_id)
    assert [row["seeds"] for row in looks] == [6]
