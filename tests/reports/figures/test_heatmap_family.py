"""Heatmaps have one size and colours of their own, with the scatter of the seeds on the scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reports.figures.heatmap import SPAN, heatmap, shades, size_of
from reports.frame import Frame
from reports.recipe import Heatmap
from reports.stats.describe import pooled_sd
from tests.reports.made import frame

PART = Heatmap(study="s", x="method.alpha", y="method.beta", title="At gamma = 1")
POINTS = [{"method.alpha": a, "method.beta": b} for a in (1, 2) for b in (1, 2)]


def made(gain: float, *, scatter: float = 0.01, seeds: int = 3) -> Frame:
    def value(at: dict[str, Any], seed: int) -> float:
        return 0.5 + gain * (at["method.alpha"] - 1) + scatter * (seed - (seeds - 1) / 2)

    return frame("grid", POINTS, value, seeds=seeds)


def test_pooled_sd_is_that_of_all_deviations_from_their_own_means() -> None:
    groups = [[1.0, 2.0, 4.0], [10.0, 11.0], [5.0], [float("nan"), 7.0]]
    deviations = np.concatenate([np.array(g) - np.mean(g) for g in groups[:2]])
    found = pooled_sd(groups)
    assert found is not None and found[1] == 2
    assert found[0] == pytest.approx(np.sqrt((deviations**2).sum() / 3))
    assert pooled_sd([[1.0], []]) is None


def test_noise_spans_a_small_part_of_the_colours() -> None:
    noise = shades(made(0.002), PART)
    assert noise.sd == pytest.approx(1.0)
    assert noise.high - noise.low == pytest.approx(SPAN * 1.0)
    assert (noise.low + noise.high) / 2 == pytest.approx(50.1)
    effect = shades(made(0.3), PART)
    assert (effect.low, effect.high) == pytest.approx((50.0, 80.0))


def test_a_small_effect_has_colours_beside_a_large_one() -> None:
    """On one scale for both, the panel of the small effect would have a single colour."""
    small, large = (heatmap(made(gain, scatter=0.001), PART) for gain in (0.02, 0.5))
    for drawn, ends in ((small, (50.0, 52.0)), (large, (50.0, 100.0))):
        assert drawn.figure.axes[0].images[0].get_clim() == pytest.approx(ends)


def test_heatmaps_of_a_report_have_one_size() -> None:
    wide = [{"method.alpha": a, "method.beta": b} for a in (1, 2) for b in range(9)]
    found = frame("grid", wide, lambda at, seed: 0.5)
    turned = PART.model_copy(update={"x": "method.beta", "y": "method.alpha"})
    size = size_of(found, [PART, turned])
    for part in (PART, turned):
        drawn = heatmap(found, part, size)
        assert tuple(drawn.figure.get_size_inches()) == size
        own = size_of(found, [part])
        assert all(mine <= shared for mine, shared in zip(own, size, strict=True))
    assert size_of(found, [])[0] > 0


def test_the_scale_has_the_sd_on_it_and_the_caption_says_of_what() -> None:
    drawn = heatmap(made(0.3), PART)
    bar = drawn.figure.axes[1]
    ends = bar.containers[0].lines[2][0].get_segments()[0][:, 1]
    assert ends[1] - ends[0] == pytest.approx(2.0)
    assert "± one sd of runs over seeds, 1.00, pooled over its own 4 cells" in drawn.caption
    single = heatmap(made(0.3, seeds=1), PART)
    assert "no setting was repeated" in single.caption
    assert not single.figure.axes[1].containers


def test_letters_stand_for_their_names() -> None:
    drawn = heatmap(made(0.3), PART)
    axes = drawn.figure.axes[0]
    assert drawn.title == "At γ = 1" and axes.get_title(loc="left") == "At γ = 1"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("α", "β")
