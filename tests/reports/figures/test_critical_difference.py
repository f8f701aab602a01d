"""The critical-difference diagram: its blocks, what it leaves out, and what it says of that."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from reports.errors import ReportError
from reports.figures.critical_difference import blocks_of, critical_difference
from reports.recipe import Figure
from tests.reports.made import METRIC, frame

BETTER = {"plain": 0.0, "ddml": 0.2, "nir": 0.1}
CROSS = [
    {"data": data, "loss": loss, "method": method}
    for data, loss, method in itertools.product(("birds", "cars"), ("pa", "ms"), BETTER)
    if (loss, method) != ("ms", "nir")
]


def value(coords: dict[str, Any], seed: int) -> float:
    return 0.3 + BETTER[coords["method"]] + 0.01 * seed


def recipe(**options: Any) -> Figure:
    return Figure(
        kind="critical_difference",
        studies=("s",),
        metric=METRIC,
        options={"factor": "method", **options},
    )


def test_a_block_is_a_data_set_with_a_loss_and_its_values_are_means_over_seeds() -> None:
    levels, blocks = blocks_of(frame("compare", CROSS, value).study("s"), "method", METRIC)
    assert levels == ["plain", "ddml", "nir"]
    assert len(blocks) == 4
    assert blocks[("data", "cars"), ("loss", "pa")] == pytest.approx(
        {"plain": 0.31, "ddml": 0.51, "nir": 0.41}
    )
    assert set(blocks[("data", "cars"), ("loss", "ms")]) == {"plain", "ddml"}


def test_blocks_that_lack_a_level_are_left_out_and_named() -> None:
    drawn = critical_difference(frame("compare", CROSS, value), recipe())
    assert "mean rank over 2 blocks" in drawn.caption
    assert "Blocks left out for lacking a level: birds, ms; cars, ms." in drawn.caption
    words = [text.get_text() for text in drawn.figure.axes[0].texts]
    assert "ddml (1.00) " in words and " plain (3.00)" in words
    assert len(drawn.run_ids) == 3 * len(CROSS)


def test_a_level_may_be_left_out_instead() -> None:
    drawn = critical_difference(frame("compare", CROSS, value), recipe(without=["nir"]))
    assert "mean rank over 4 blocks" in drawn.caption and "Left out: nir." in drawn.caption
    assert "lacking" not in drawn.caption


def test_rows_beside_others_are_no_methods_of_their_own() -> None:
    coords = [*CROSS, {**CROSS[1], "neutral": "left out"}]
    names = [" ".join(c.values()) for c in CROSS]
    made = frame("compare", coords, value, names=[*names, f"{names[1]}, not neutral"])
    assert "over 2 blocks" in critical_difference(made, recipe()).caption


def test_without_results_it_says_so() -> None:
    drawn = critical_difference(frame("compare", CROSS, lambda coords, seed: None), recipe())
    assert "nothing to rank" in drawn.caption and drawn.gaps


def test_what_it_cannot_draw_is_told() -> None:
    with pytest.raises(ValidationError, match="factor"):
        Figure(kind="critical_difference", studies=("s",), options={})
    with pytest.raises(ReportError, match="'flow'"):
        critical_difference(frame("compare", CROSS, value), recipe(factor="flow"))


def test_levels_that_are_on_or_off_are_left_out_by_these_words() -> None:
    cross = [{"data": d, "mixing": on} for d in ("birds", "cars") for on in (True, False)]
    cross += [{"data": d, "mixing": "half"} for d in ("birds", "cars")]
    made = frame("compare", cross, lambda at, seed: len(str(at["mixing"])) / 10 + seed / 100)
    everything = critical_difference(made, recipe(factor="mixing"))
    assert "mean rank over 2 blocks" in everything.caption
    words = [text.get_text().strip() for text in everything.figure.axes[0].texts]
    (off,) = {word.split(" (")[0] for word in words} & {"off", "False", "false"}
    fewer = critical_difference(made, recipe(factor="mixing", without=[off]))
    words = [text.get_text() for text in fewer.figure.axes[0].texts]
    assert f"Left out: {off}." in fewer.caption
    assert not [word for word in words if word.strip().startswith(off)]
