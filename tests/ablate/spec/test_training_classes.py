"""`evaluate: [train]`: the training classes are reported, and nothing is compared by them."""

from __future__ import annotations

import pytest

from tests.ablate.specs import plan, spec
from trainables.errors import ConfigError

TABLE = {"kind": "compare", "study": "rows", "metrics": ["train/map_at_r", "train/density"]}
READ = {"studies__rows__evaluate": ["train"], "studies__rows__metrics": ["density"]}


def test_it_is_read_last_and_beside_what_the_objective_needs() -> None:
    planned = plan(spec(**READ, report={"tables": [TABLE]}))
    assert planned.list_evaluation_splits("rows") == ("val", "train")
    both = plan(spec(studies__rows__evaluate=["train", "test", "val"]))
    assert both.list_evaluation_splits("rows") == ("val", "test", "train")


def test_it_names_no_other_sweep_and_no_other_trial() -> None:
    before, now = plan(spec()), plan(spec(studies__rows__evaluate=["test", "train"]))
    assert now.sweep_id == before.sweep_id


def test_a_metric_of_neither_task_is_refused_and_one_of_another_task_told() -> None:
    curve = {"curves": [{"studies": ["rows"], "metric": "train/top_1_accuracy"}]}
    with pytest.raises(ConfigError, match=r"report\.curves\.0\.metric.*selection: {train_curve"):
        plan(spec(report=curve))
