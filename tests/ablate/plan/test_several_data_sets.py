"""Specs over several data sets that select on test, as those of the papers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from tests.ablate.specs import plan
from trainables.config.images import DataConfig
from trainables.words.errors import ConfigError

PAPER = "data.split.protocol"


def spec(objective: str = "test/recall_at_1", **trial: Any) -> dict[str, Any]:
    rows = {
        "design": "compare",
        "variants": {"base": {"trial": {"method": {"name": "plain"}}}, "ddml": {}},
        "evaluate": ["test"],
    }
    return {
        "name": "tables",
        "objective": objective,
        "trial": {
            "data": {"split": {"protocol": "paper"}},
            "loss": {"name": "normsoftmax"},
            "method": {"name": "ddml"},
            **trial,
        },
        "studies": {
            "cub": {**rows, "trial": {"data.name": "cub200"}},
            "cars": {**rows, "trial": {"data.name": "cars196"}},
        },
    }


def with_birds_alone(*studies: str) -> Plan:
    def fingerprint(config: DataConfig, cache: Path) -> str:
        if config.name != "cub200":
            raise ConfigError("data.root", "Cars196 needs a folder.")
        return "birds"

    return build_checked_plan(
        read_spec(spec()), Overrides(studies=studies), fingerprint, Path("unused")
    )


def test_a_study_runs_without_the_data_of_the_others() -> None:
    made = with_birds_alone("cub")
    assert made.order == ("cub",)
    assert set(made.fingerprints.values()) == {"birds"}


@pytest.mark.parametrize("studies", [(), ("cars",), ("cub", "cars")])
def test_a_study_that_runs_needs_its_data(studies: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="Cars196 needs a folder"):
        with_birds_alone(*studies)


def test_held_out_selects_on_validation() -> None:
    made = plan(spec(), settings={PAPER: "held_out"})
    assert made.spec.objective == "val/recall_at_1"
    assert made.list_evaluation_splits("cub") == ("val", "test")
    assert made.resolve_config(
        "cub", made.spec.studies["cub"].all_points[0]
    ).data.split.protocol == ("held_out")
    assert made.sweep_id != plan(spec()).sweep_id


def test_no_option_makes_test_classes_select() -> None:
    given = spec("val/recall_at_1", data={"split": {"protocol": "held_out"}})
    with pytest.raises(ConfigError, match=r"cannot compare .*protocol: paper"):
        plan(given, settings={PAPER: "paper"})
