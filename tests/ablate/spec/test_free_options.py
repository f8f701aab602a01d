"""Options of another library's class are tuned like fields, though no model knows their names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ablate.specs import plan
from trainables.words.errors import ConfigError

LOSS = {"name": "pml", "class": "CircleLoss", "options": {"m": 0.4}}


def given(**studies: Any) -> dict[str, Any]:
    trial = {"loss": LOSS, "training": {"epochs": 2}}
    return {"name": "free", "seeds": 1, "trial": trial, "studies": studies}


def test_a_grid_and_a_search_over_options() -> None:
    grid = {"design": "grid", "grid": {"loss.options.m": [0.1, 0.2], "loss.options.gamma": [8, 80]}}
    search = {
        "design": "search",
        "trials": 4,
        "space": {"loss.options.gamma": {"low": 20, "high": 100}},
    }
    made = plan(given(grid=grid, tune=search))
    points = made.spec.studies["grid"].points()
    options = [made.resolve_config("grid", point).loss.options for point in points]
    assert options == [{"m": m, "gamma": gamma} for m in (0.1, 0.2) for gamma in (8, 80)]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("loss.options.margin", "unexpected keyword argument 'margin'"),
        ("loss.options.m.x", "loss.options.m has nothing below it"),
        ("loss.optoins.m", "Did you mean 'loss.options'"),
        ("loss.miner.options.epsilon", "class"),
    ],
)
def test_what_is_no_option_is_refused(path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(given(grid={"design": "grid", "grid": {path: [0.1, 0.2]}}))
