"""`evaluate: [train]`: the training classes are reported, and nothing is compared by them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ablate.specs import plan, spec
from trainables.errors import ConfigError

TABLE = {"kind": "compare", "study": "rows", "metrics": ["train/map_at_r", "train/density"]}
READ = {"studies__rows__evaluate": ["train"], "studies__rows__metrics": ["density"]}


def test_it_is_read_last_and_beside_what_the_objective_needs() -> None:
    planned = plan(spec(**READ, report={"tables": [TABLE]}))
    assert planned.evaluate("rows") == ("val", "train")
    both = plan(spec(studies__rows__evaluate=["train", "test", "val"]))
    assert both.evaluate("rows") == ("val", "test", "train")


def test_it_names_no_other_sweep_and_no_other_trial() -> None:
    before, now = plan(spec()), plan(spec(studies__rows__evaluate=["test", "train"]))
    assert now.sweep_id == before.sweep_id


COMPARED = "a metric of classes held out from training: search optimises validation"
INSTEAD = "Write val/map_at_r; with `evaluate: [val, train]` tables may show train/map_at_r"


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("objective", {"objective": "train/map_at_r"}),
        (
            "studies.tune.objectives.0.metric",
            {
                "studies__tune__objectives": [{"metric": "train/map_at_r"}],
                "studies__tune__evaluate": ["train"],
            },
        ),
        (
            "studies.parts.around.by",
            {"studies__parts__around": {"best_of": "tune", "by": "train/map_at_r"}},
        ),
    ],
)
def test_nothing_is_compared_by_it(place: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(spec(**changes))
    message = str(caught.value)
    assert "\n" not in message
    assert f"{place}: found 'train/map_at_r', of the classes that trials train on" in message
    assert f"; expected {COMPARED}. {INSTEAD}" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"report": {"tables": [{**TABLE, "metrics": ["train/map_at_r"]}]}},
            ["report.tables.0.metrics.0", "Add `evaluate: [val, test, train]` to studies.rows"],
        ),
        (
            {"studies__rows__evaluate": ["train"], "report": {"tables": [TABLE]}},
            ["report.tables.0.metrics.1", "Add `metrics: [density]` to studies.rows"],
        ),
        (
            {**READ, "report": {"tables": [{**TABLE, "metrics": ["training/MAP@R"]}]}},
            ["Did you mean 'train/map_at_r'?"],
        ),
        (
            {**READ, "report": {"curves": [{"studies": ["rows"], "metric": "train/map_at_r"}]}},
            ["report.curves.0.metric", "of rows do not look at", "selection: {train_curve: true}"],
        ),
        ({"studies__rows__evaluate": ["training"]}, ["studies.rows.evaluate.0", "'train'"]),
    ],
)
def test_a_report_of_what_is_not_read_is_told_before_anything_runs(
    changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(spec(**changes))
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_trials_that_look_at_the_training_classes_have_their_curve() -> None:
    curve = {"curves": [{"studies": ["rows"], "metric": "train/map_at_r"}]}
    assert plan(spec(report=curve, studies__rows__trial={"selection.train_curve": True}))


def test_the_loss_of_every_epoch_keeps_its_curve() -> None:
    assert plan(spec(report={"curves": [{"studies": ["rows"], "metric": "train/loss"}]}))


def test_a_metric_of_neither_task_is_refused_and_one_of_another_task_told() -> None:
    curve = {"curves": [{"studies": ["rows"], "metric": "train/top_1_accuracy"}]}
    with pytest.raises(ConfigError, match=r"report\.curves\.0\.metric.*selection: {train_curve"):
        plan(spec(report=curve))
