"""Messages that new users met: full sentences, with the likeliest remedy first."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.spec.read import read_spec
from ablate.values.removed import VERSION
from tests.ablate import specs
from trainables.config.images import DataConfig
from trainables.data.dataset import fingerprint
from trainables.errors import ConfigError


def refusal(**changes: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read_spec(specs.spec(**changes))
    return str(caught.value)


def test_a_misspelt_metric_is_a_short_line_with_its_suggestion_first() -> None:
    line = refusal(objective="val/recal_at_1")
    assert "expected val/recall_at_1, " in line and "Did you mean 'val/recall_at_1'?" in line
    assert len(line) < 250


@pytest.mark.parametrize(
    ("design", "wrong", "right"),
    [("grid", "space", "grid"), ("search", "grid", "space"), ("components", "grid", "components")],
)
def test_what_a_study_varies_under_another_design_s_name(
    design: str, wrong: str, right: str
) -> None:
    line = refusal(studies__odd={"design": design, wrong: {"method.beta": [0.1, 1]}})
    assert f"Did you mean {right!r}?" in line


def test_a_bound_is_named_as_it_would_be_written() -> None:

    with pytest.raises(ConfigError) as caught:
        specs.plan(specs.spec(trial__optimizer={"lr": 0}))
    line = str(caught.value)
    assert line.endswith("Give a number above 0") and "0.0" not in line


def test_one_class_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    with pytest.raises(ConfigError, match="only one class folder in"):
        fingerprint(DataConfig(name="folder", root=str(tmp_path)), tmp_path / "cache")


def test_a_key_that_went_is_refused_with_the_version_and_the_remedy() -> None:
    line = refusal(resources={"priority": 1})
    assert "resources.priority: " in line and VERSION in line and "Leave it out" in line
