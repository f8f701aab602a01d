"""Searches within limits of memory and time, driven without Ray and without training."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate.designs.search import Search
from ablate.engine.progress import count_cells
from ablate.engine.work_estimate import Workload
from ablate.ledger.ledger import Ledger, Owner
from ablate.ledger.limits import Limits, describe_needs
from ablate.ledger.queries import list_infeasible, mark_infeasible
from ablate.plan.plan import Plan
from ablate.results import find_best, read_frame
from ablate.search.sampling import ObservedTrial, propose
from ablate.sweep.estimates import TrialCosts, estimate_at
from ablate.sweep.job_queue import JobQueue
from ablate.tracking.payload import build_sweep_document
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain, finish
from tests.ablate.search.searches import SAMPLERS
from trainables.jobs.request import Job
from trainables.machine import devices
from trainables.machine.devices import PeakMemory
from trainables.words.errors import ConfigError

RUNNER = "tests.ablate.sweep.test_limits:run_costly"
BATCHES = [16, 32, 64, 128, 256, 512]
LIMITS = {"memory": "20GB"}
LARGEST = 256  # images with which a trial does not run out of memory
SPACE = {
    "training.batch_size": {"choice": BATCHES},
    "optimizer.lr": {"low": 1e-5, "high": 1e-1, "log": True},
}


def peak_bytes(batch: int) -> float:
    return 2e9 + batch * 1.5e8  # 16: 4.4 GB, 64: 11.6, 128: 21.2


def run_costly(job: Job) -> Iterator[dict[str, Any]]:
    batch = job.config["training"]["batch_size"]
    if batch > LARGEST:
        raise MemoryError(f"{batch} images do not fit")
    for event in synthetic.run_job(job):
        if event["event"] == "final":
            event["provenance"]["peak_bytes"] = peak_bytes(batch)
            event["steps"] = event["epochs"] * 4800 // batch
            event["seconds"] = event["steps"] * (0.01 + 0.001 * batch)  # at least 5 an epoch
        yield event


def plan(name: str = "limited", **more: Any) -> Plan:
    tune = {"design": "search", "trials": 6, "round": 2, "startup": 3, "space": SPACE, **more}
    after = {"design": "compare", "variants": {"a": {"around": {"best_of": "tune"}}}}
    tune.setdefault("limits", LIMITS)
    studies = {"tune": tune, "after": after}
    return specs.plan(
        {"name": name, "seeds": 1, "trial": {"training.epochs": 2}, "studies": studies}
    )


def run(made: Plan, folder: Path, **more: Any) -> JobQueue:
    scheduler = dispatch(made, folder, runner=RUNNER)
    drain(scheduler, **more)
    return scheduler


def proposals(scheduler: JobQueue) -> list[tuple[Any, ...]]:
    proposer = scheduler.progression.proposers["tune"]
    rows = scheduler.ledger.list_proposals(proposer.key)
    return [(*sorted(row["params"].items()), row["infeasible"]) for row in rows.values()]


def batches(scheduler: JobQueue) -> list[int]:
    """Return the batch sizes of the search's trials."""
    cells = scheduler.progression.studies["tune"].cells
    return [cell.config["training"]["batch_size"] for cell in cells]


# a fixed list, in which the rates of those that need too much are the best
LISTED = [(16, 1e-4), (64, 3e-4), (128, 1e-3), (512, 1e-3), (256, 1e-3), (32, 6e-4), (64, 1e-2)]
POINTS = [{"training.batch_size": batch, "optimizer.lr": lr} for batch, lr in LISTED]
GRID = {"training.batch_size": [*range(len(BATCHES))], "optimizer.lr": [1e-4, 7e-4, 1e-2]}


@pytest.mark.parametrize(
    "more",
    [
        {"points": POINTS, "trials": len(POINTS), "round": 1},
        {"points": POINTS, "trials": len(POINTS), "round": 3},
        {
            "sampler": {
                "name": "optuna",
                "class": "GridSampler",
                "options": {"search_space": GRID},
            },
            "trials": 18,
            "round": 1,
        },
    ],
)
def test_the_best_is_that_of_the_feasible(more: dict[str, Any], tmp_path: Path) -> None:
    unlimited = run(plan("unlimited", limits=None, **more), tmp_path / "a")
    limited = run(plan(**more), tmp_path / "b")
    search = limited.progression.studies["tune"]
    best = limited.progression.ranking.rank_study("tune")[0]
    every = [cell.config for cell in unlimited.progression.studies["tune"].cells]
    feasible = [c for c in every if peak_bytes(c["training"]["batch_size"]) <= 20e9]
    expected = max(feasible, key=lambda config: synthetic.score(config, 0))
    assert best.cell.config["optimizer"] == expected["optimizer"]
    without = unlimited.progression.ranking.rank_study("tune")[0]
    assert without is not None and without.value >= best.value
    # those that would need too much were not trained, once the costs were known
    assert search.infeasible and search.complete and len(search.cells) == more["trials"]
    assert max(t.params["training.batch_size"] for t in search.infeasible.values()) > 64
    assert count_cells(limited.progression, "tune", set()).best == best.value, "the display, too"
    found = find_best(read_frame(limited.ledger, limited.sweep_id), "tune", tmp_path)
    assert found.cell == best.cell.cell, "`ablate best` names the same cell"


@pytest.mark.parametrize("mode", [2, "asynchronous"])
@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_the_budget_counts_trained_trials(mode: Any, sampler: str, tmp_path: Path) -> None:
    scheduler = run(plan(round=mode, trials=14, sampler=sampler), tmp_path, at_once=3)
    search, made = scheduler.progression.studies["tune"], proposals(scheduler)
    assert len(search.cells) == 14 and search.complete
    assert len(made) == 14 + len(search.infeasible) and search.infeasible
    document = build_sweep_document(
        scheduler.ledger.get_sweep(scheduler.sweep_id),
        mark_infeasible(scheduler.ledger, scheduler.sweep_id),
        list_infeasible(scheduler.ledger, scheduler.sweep_id),
    )
    number = len(search.infeasible)
    assert document["infeasible"] == {"tune": {"proposals": number, "memory": number}}
    broken = {cell["cell"] for cell in document["cells"] if cell.get("infeasible")}
    over = {cell.cell for cell, n in zip(search.cells, batches(scheduler), strict=True) if n > 64}
    assert broken == over


def test_decisions_are_taken_once(tmp_path: Path) -> None:
    undisturbed = run(plan(trials=10), tmp_path / "a")
    scheduler, rounds = dispatch(plan(trials=10), tmp_path / "b", runner=RUNNER), 0
    while not scheduler.is_exhausted:  # a new driver for each trial
        scheduler.claim_next_job()
        for trial_id in list(scheduler.running):
            finish(scheduler, trial_id)
        scheduler, rounds = dispatch(plan(trials=10), tmp_path / "b", runner=RUNNER), rounds + 1
    assert proposals(scheduler) == proposals(undisturbed) and rounds >= 10
    workload = Workload(scheduler.progression.plan, scheduler.progression, {}, 0)
    number = len(undisturbed.progression.studies["tune"].infeasible)
    assert f"{number} proposals beyond the limits" in workload.add_study("tune")
    # a driver that knows other costs takes no decision again, nor does another sweep's search
    with scheduler.ledger.begin_transaction() as db:
        db.execute("UPDATE trials SET provenance_json='{}'")
    later = dispatch(plan("other", trials=10), tmp_path / "b", runner=RUNNER)
    assert later.progression.studies["tune"].infeasible.keys() == (
        undisturbed.progression.studies["tune"].infeasible.keys()
    )
    assert list_infeasible(later.ledger, later.sweep_id), "its report says so, too"


@pytest.mark.parametrize("mode", [2, "asynchronous"])
def test_a_search_without_feasible_proposals_ends(mode: Any, tmp_path: Path) -> None:
    run(
        plan("earlier", limits=None, space=SPACE | {"training.batch_size": {"choice": [16, 32]}}),
        tmp_path,
    )
    scheduler = run(plan(limits={"seconds": 5, "memory": 1e12}, round=mode), tmp_path)
    states = scheduler.progression.studies
    assert len(states["tune"].infeasible) == 4 * 6 and not states["tune"].cells
    assert "24 proposals were beyond the limits" in str(states["tune"].blocked)
    assert states["tune"].complete and "no trial of tune succeeded" in str(states["after"].blocked)
    assert scheduler.is_exhausted and scheduler.trained == 0


@pytest.mark.parametrize("limits", [LIMITS, {"seconds": 99}])
def test_a_trial_out_of_memory_is_infeasible(limits: dict[str, Any], tmp_path: Path) -> None:
    points = [{"training.batch_size": batch} for batch in (512, 16)]
    scheduler = run(plan(points=points, trials=2, round=1, limits=limits), tmp_path)
    out, trained = scheduler.progression.proposers["tune"].list_history({})
    assert (out.excess, out.values) == (1.0, None)
    assert trained.excess is not None and trained.excess < 0 and trained.values
    (cell,) = {
        cell["infeasible"]
        for cell in mark_infeasible(scheduler.ledger, scheduler.sweep_id)
        if cell["infeasible"]
    }
    assert cell == "it needed more memory than free"


def test_rungs_and_earlier_sweeps_keep_the_limits(tmp_path: Path) -> None:
    run(plan("first", limits=None, trials=8), tmp_path)
    halving = {"scheduler": {"name": "successive_halving", "factor": 2}, "round": 3, "trials": 9}
    scheduler = run(plan("halved", **halving), tmp_path, at_once=3)  # brackets are rounds of trials
    search = scheduler.progression.studies["tune"]
    assert search.infeasible and search.complete and len(search.cells) == 9
    warm = run(plan("second", warm_start="first"), tmp_path)
    history = warm.progression.proposers["tune"].list_history({})
    excesses = {t.params["training.batch_size"]: t.excess or 0 for t in history if t.values is None}
    assert min(excesses) > 64 and min(excesses.values()) > 0, "none with a value is beyond"
    assert len(history) > len(warm.progression.studies["tune"].cells)


def test_costs_follow_the_sizes() -> None:
    line = [(10.0, 30.0), (20.0, 50.0), (20.0, 54.0), (20.0, 52.0)]
    assert estimate_at(line, 20) == 52 and estimate_at(line, 15) == pytest.approx(41)
    assert estimate_at(line, 40) == pytest.approx(96) and estimate_at(line, 5) == pytest.approx(19)
    # one size gives the least that is possible, and noise gives no more than proportional costs
    assert estimate_at([(10, 30)], 40) == 30 and estimate_at([(10, 30)], 5) == 15
    assert (
        estimate_at([(10, 30), (11, 60)], 22) == 120 and estimate_at([(10, 30), (9, 31)], 99) == 30
    )


def test_the_device_that_needs_least_counts(tmp_path: Path) -> None:
    config = specs.plan().resolve_config("tune", None).model_dump(mode="json")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        costs = TrialCosts(ledger)
        assert costs.estimate_needs(config) == {}
        for device, seconds in (("cpu", 900.0), ("cuda (A)", 30.0), ("cuda (B)", 60.0)):
            ledger.claim(device, "h", 0, config, Owner.from_this_process())
            provenance = {"device": device, "peak_bytes": "1e12"}  # no number, as a batch may say
            final = synthetic.FINAL | {"seconds": seconds, "epochs": 3, "provenance": provenance}
            ledger.record_final(device, final)
        assert costs.estimate_needs(config) == {"seconds": pytest.approx(30)}
        longer = config | {"training": config["training"] | {"epochs": 12}}
        assert costs.estimate_needs(longer) == {"seconds": pytest.approx(120)}
        other = config | {"loss": config["loss"] | {"name": "another"}}
        assert costs.estimate_needs(other) == {}


CASES = [(sampler, n > 1) for sampler in SAMPLERS for n in (1, 2) if (sampler, n) != ("cmaes", 2)]


@pytest.mark.parametrize(("sampler", "several"), CASES)
def test_every_sampler_takes_infeasible_proposals(sampler: str, several: bool) -> None:
    goals = ["val/map_at_r", "val/recall_at_1"] if several else []
    space = {"x": {"low": 0, "high": 1}, "y": {"low": 0, "high": 1}}
    content = {"design": "search", "trials": 99, "round": 1, "startup": 4, "space": space}
    study = Search.model_validate(content | {"sampler": sampler, "objectives": goals})
    earlier: list[ObservedTrial] = []
    for index in range(8):
        params = propose(study, "key", earlier)
        value = (params["y"], 1 - params["y"]) if several else params["y"]
        if index % 2 == 0:  # the first too: a sampler may know no value yet
            earlier.append(ObservedTrial(params, None, excess=params["x"] + 0.1))
        else:
            earlier.append(ObservedTrial(params, None if index == 3 else value, excess=-0.1))
    assert propose(study, "key", earlier) == propose(study, "key", earlier)


@pytest.mark.slow
def test_tpe_learns_to_keep_the_limits() -> None:
    """The objective rises towards the forbidden part, three quarters of the space."""
    space = {"x": {"low": 0, "high": 1}, "y": {"low": 0, "high": 1}}
    content = {"design": "search", "trials": 99, "round": 1, "startup": 6, "space": space}
    study = Search.model_validate(content)
    counts = {True: 0, False: 0}
    for limited in counts:
        for seed in range(20):
            earlier: list[ObservedTrial] = []
            for _ in range(20):
                params = propose(study, f"seed {seed}", earlier)
                excess, value = params["x"] / 0.25 - 1, params["x"] + params["y"]
                counts[limited] += excess > 0
                if limited:
                    known = None if excess > 0 else value
                    earlier.append(ObservedTrial(params, known, excess=excess))
                else:
                    earlier.append(ObservedTrial(params, value))
    assert counts[True] < 0.75 * counts[False], counts


def test_without_limits_nothing_changes() -> None:
    unlimited = plan(limits=None)
    spec = unlimited.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert "limits" not in spec["studies"]["tune"]
    assert specs.plan(spec).sweep_id == unlimited.sweep_id != plan().sweep_id
    key = unlimited.compute_study_key("tune", [])
    assert plan().compute_study_key("tune", []) != key
    assert plan(limits={"memory": 2e10}).sweep_id == plan().sweep_id, "the unit does not matter"


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"memory": "20 parrots"},
        {"memory": 20},
        {"memory": True},
        {"seconds": 0},
        {"seconds": "soon"},
        {"hours": 3},
        {"memory": "-1GB"},
        20,
        "20GB",
        {"memory": [1]},
    ],
)
def test_a_bad_limit_is_one_sentence(limits: Any) -> None:
    with pytest.raises(ConfigError, match=r"limits") as caught:
        plan(limits=limits)
    assert "\n" not in str(caught.value) and "pydantic" not in str(caught.value), str(caught.value)


def test_units_and_words() -> None:
    sizes = {"20GB": 20e9, "20 GiB": 20 * 2**30, "1.5 tb": 1.5e12, 3_000_000: 3e6}
    assert [Limits(memory=text).memory for text in sizes] == [*sizes.values()]
    limits = Limits(memory="20GB", seconds=600)
    assert describe_needs(dict(limits)) == "20 GB of memory and 600 seconds"
    assert limits.select_excessive({"memory": 31e9, "seconds": 5}) == {"memory": 31e9}
    assert limits.measure_excess({}) == 0 and limits.measure_excess({"memory": math.inf}) == 1
    (note,) = plan().spec.studies["tune"].notes()
    assert note == "limits of a trial: 20 GB of memory"


def use_memory(size: int) -> None:
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        for start in range(0, size, mmap.PAGESIZE):
            block[start] = 1


def test_the_peak_of_an_earlier_trial_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu, size = torch.device("cpu"), 320_000_000
    first = PeakMemory(cpu)
    use_memory(size)
    peak = first.read()
    after = PeakMemory(cpu).read()
    if peak is None or after is None:
        pytest.skip("this system cannot forget a peak")
    assert size < peak < after + 1.5 * size
    assert after < peak - size / 2
    # A system may ignore the reset; then the peak of an earlier trial counts for no other trial.
    use_memory(size)
    (tmp_path / "ignored").touch()
    monkeypatch.setattr(devices, "RESET", tmp_path / "ignored")
    assert PeakMemory(cpu).read() is None
