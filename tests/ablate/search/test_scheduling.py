"""Schedulers as pure functions, against plain runs of their papers' algorithms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.search.early_stopping import Asha, Hyperband, Median, SuccessiveHalving
from ablate.search.scheduling import STOP, WAIT, Decision, LearningCurve, SchedulerBase

Curve = Callable[[int, int], float]  # (cell, epoch) → value


def play(
    scheduler: SchedulerBase,
    count: int,
    epochs: int,
    curve: Curve,
    *,
    workers: int,
    seed: int = 0,
    round_size: int | None = None,
) -> tuple[list[int], int]:
    """Run a study with `workers` at once, legs of random duration: epochs that each cell got,
    and how many epochs were trained in all."""
    draw = random.Random(seed)
    reached, stopped = [0] * count, set[int]()
    busy: dict[int, tuple[float, int]] = {}
    clock, trained = 0.0, 0
    while True:
        entries = [
            LearningCurve(
                tuple(curve(i, e) for e in range(1, reached[i] + 1)),
                epochs,
                running=i in busy,
                stopped=i in stopped,
                bracket=i // (round_size or count),
            )
            for i in range(count)
        ]
        decisions = scheduler.decide(entries, closed=True)
        stopped |= {i for i, d in enumerate(decisions) if d == STOP and scheduler.keeps_stops}
        for place, decision in enumerate(decisions):
            if isinstance(decision, int) and place not in busy and len(busy) < workers:
                assert decision > reached[place]
                busy[place] = (clock + draw.random() * (decision - reached[place]), decision)
        if not busy:
            assert WAIT not in decisions
            return reached, trained
        place = min(busy, key=lambda i: busy[i][0])
        clock, goal = busy.pop(place)
        trained += goal - reached[place]
        reached[place] = goal


def planted(cell: int, epoch: int) -> float:
    """Cell 17 is best at every epoch, the others in a fixed random order."""
    level = 1.0 if cell == 17 else random.Random(cell).random() * 0.9
    return level * (1 - math.exp(-epoch / 5))


def test_successive_halving_is_the_papers() -> None:
    reached, trained = play(SuccessiveHalving(), 27, 27, planted, workers=4)
    order = sorted(range(27), key=lambda i: -planted(i, 1))
    expected = dict.fromkeys(order, 1) | dict.fromkeys(order[:9], 3)
    expected |= dict.fromkeys(order[:3], 9) | {order[0]: 27}
    assert reached == [expected[i] for i in range(27)]
    assert order[0] == 17
    assert trained == 18 * 1 + 6 * 3 + 2 * 9 + 27


@pytest.mark.parametrize("workers", [1, 3, 27])
@pytest.mark.parametrize("seed", range(3))
def test_halving_does_not_depend_on_timing(workers: int, seed: int) -> None:
    once = play(SuccessiveHalving(), 27, 9, planted, workers=1)
    assert play(SuccessiveHalving(), 27, 9, planted, workers=workers, seed=seed) == once


def test_hyperband_begins_later_bracket_by_bracket() -> None:
    reached, _ = play(Hyperband(), 36, 9, planted, workers=4, round_size=9)
    brackets = [sorted(reached[i : i + 9]) for i in range(0, 36, 9)]
    assert brackets[0] == [1] * 6 + [3] * 2 + [9]
    assert brackets[1] == [3] * 6 + [9] * 3
    assert brackets[2] == [9] * 9
    assert brackets[3] == brackets[0]


@pytest.mark.parametrize("seed", range(5))
def test_asha_finds_the_planted_best_of_64_with_a_third_of_the_budget(seed: int) -> None:
    reached, trained = play(Asha(), 64, 27, planted, workers=4, seed=seed)
    assert reached[17] == 27
    assert trained <= 64 * 27 / 3


def test_asha_promotes_as_in_its_paper() -> None:
    values = [0.1, 0.5, 0.3, 0.4, 0.2, 0.6]
    entries = [LearningCurve((value,), 9) for value in values]
    decisions = Asha().decide(entries, closed=False)
    assert decisions == [WAIT, 3, WAIT, WAIT, WAIT, 3]


def test_median_stops_below_the_median_and_for_good() -> None:
    levels = [0.1, 0.2, 0.3, 0.4]
    entries = [LearningCurve((level,) * 4, 4) for level in levels]
    late = LearningCurve((0.24, 0.24), 4)
    rule = Median(grace=2, every=1, least=3)
    assert rule.decide([*entries, late], closed=True)[-1] == STOP
    good = LearningCurve((0.26, 0.26), 4)
    assert rule.decide([*entries, good], closed=True)[-1] == 3
    few = Median(grace=2, every=1, least=5)
    assert few.decide([*entries, late], closed=True)[-1] == 3
    kept = LearningCurve((0.26, 0.26), 4, stopped=True)
    assert rule.decide([*entries, kept], closed=True)[-1] == STOP


@settings(max_examples=200, deadline=None)
@given(
    scheduler=st.sampled_from(
        [
            SuccessiveHalving(),
            SuccessiveHalving(grace=2, factor=2),
            Hyperband(),
            Asha(),
            Asha(grace=2, factor=4),
            Median(),
            Median(grace=2, every=3),
        ]
    ),
    count=st.integers(1, 12),
    epochs=st.integers(1, 12),
    workers=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_every_study_ends_with_a_whole_trial(
    scheduler: SchedulerBase, count: int, epochs: int, workers: int, seed: int
) -> None:
    level = [random.Random(seed + i).random() for i in range(count)]
    reached, trained = play(
        scheduler, count, epochs, lambda i, e: level[i] * e, workers=workers, seed=seed
    )
    assert max(reached) == epochs
    assert trained == sum(reached)


def test_failed_cells_neither_block_nor_run() -> None:
    entries = [
        LearningCurve((), 9, failed=True),
        LearningCurve((0.2,), 9),
        LearningCurve((0.1,), 9),
    ]
    found: list[Decision] = SuccessiveHalving(factor=2).decide(entries, closed=True)
    assert found == [STOP, 2, STOP]
    assert Asha().decide([LearningCurve((), 9, failed=True)] * 2, closed=True) == [STOP, STOP]
    assert Hyperband().decide([LearningCurve((), 9, failed=True)], closed=True) == [STOP]
