"""`--set` must fit the studies that `--study` asks for, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ablate import specs
from trainables.words.errors import ConfigError

SPEC = specs.spec(
    studies__steps={
        "design": "compare",
        "variants": {"a": {}},
        "trial": {"schedule": {"name": "multi_step", "milestones": [2]}},
    }
)
SETTINGS: list[dict[str, Any]] = [
    {"training.epochs": 1},  # a milestone of `steps` would lie beyond the last epoch
    {"method.beta": 0.5},  # no option of the method of one of `rows`
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_studies_not_asked_for_refuse_no_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        specs.plan(SPEC, settings=settings)
    plan = specs.plan(SPEC, settings=settings, studies=("grid",))
    (path, value) = next(iter(settings.items()))
    part, name = path.split(".")
    config = plan.resolve_config("grid", plan.spec.studies["grid"].all_points[0]).model_dump()
    if path != "method.beta":  # which the grid itself varies
        assert config[part][name] == value
    with pytest.raises(ConfigError):
        specs.plan(SPEC, settings=settings, studies=("steps", "rows"))


def test_settings_that_fit_all_studies_leave_the_sweep_the_same() -> None:
    settings = {"training.epochs": 4}
    both = [specs.plan(SPEC, settings=settings, studies=s).sweep_id for s in ((), ("grid",))]
    assert both[0] == both[1]
