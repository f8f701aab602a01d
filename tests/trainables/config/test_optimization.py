"""Optimiser and schedule: what is refused, and what is one trial however it is written."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainables.config.optimization import OptimizerConfig, ScheduleConfig
from trainables.core.identity import compute_config_hash, dump_identity
from trainables.trial import TrialConfig

SGD = {"name": "sgd", "nesterov": True}
MULTI = {"name": "multi_step", "milestones": [2, 5]}


def trial(**sections: Any) -> TrialConfig:
    return TrialConfig.model_validate(sections)


@pytest.mark.parametrize(
    ("config", "given", "words"),
    [
        (OptimizerConfig, {"nesterov": True}, "adamw with a momentum of 0.9 does not use nesterov"),
        (OptimizerConfig, {**SGD, "dampening": 0.1}, "nesterov: nesterov excludes"),
        (OptimizerConfig, {"betas": (0.9, 1.5)}, "betas"),
        (OptimizerConfig, {"betas": (-0.1, 0.9)}, "betas"),
        (
            ScheduleConfig,
            {"name": "step", "milestones": [2]},
            r"\[2\] do not fit schedule.name: step",
        ),
        (ScheduleConfig, {**MULTI, "milestones": [5, 2]}, r"\[5, 2\] do not rise"),
        (
            ScheduleConfig,
            {"name": "cosine", "counted_from": "start"},
            "counted_from: only the schedules step and multi_step use `counted_from`, not cosine",
        ),
        (
            ScheduleConfig,
            {"warmup_hold": ["backbone", "head"]},
            r"head\] has no effect without a warm-up",
        ),
        (ScheduleConfig, {"warmup_hold": ["head"], "warmup_steps": 0}, "without a warm-up"),
    ],
)
def test_a_section_refuses_what_it_would_not_use(config: Any, given: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**given)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"schedule": {**MULTI, "milestones": [19], "warmup_epochs": 1}},
            r"below training.epochs minus schedule.warmup_epochs, 19, not \[19\]",
        ),
        (
            {"schedule": {"warmup_epochs": 1, "warmup_hold": ["margins"]}},
            r"warmup_hold sets margins, but this trial trains only backbone, head, proxies",
        ),
        (
            {"schedule": {"warmup_epochs": 1, "warmup_hold": ["backbone", "head", "proxies"]}},
            "or nothing trains in the warm-up",
        ),
        (
            {"schedule": {"warmup_steps": 9, "warmup_hold": ["backbone", "head", "proxies"]}},
            "or nothing trains in the warm-up",
        ),
    ],
)
def test_a_trial_refuses_what_would_come_to_nothing(sections: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        trial(**sections)


@pytest.mark.parametrize(
    "sections",
    [
        {"optimizer": {"nesterov": False, "dampening": 0}},
        {"optimizer": {"weight_decays": None}},
        {"optimizer": {"weight_decays": {}}},
        {"optimizer": {"weight_decays": {"head": None, "auxiliary": None}}},
        {"schedule": {"milestones": None, "counted_from": "warmup_end", "warmup_hold": None}},
        {"schedule": {"warmup_hold": ["backbone"]}},
        {"schedule": {"warmup_steps": 0}},
    ],
)
def test_the_default_written_out_is_the_same_trial(sections: Any) -> None:
    assert compute_config_hash(trial(**sections), "f") == compute_config_hash(trial(), "f")
    names = {"weight_decays", "nesterov", "dampening", "milestones", "counted_from"}
    names |= {"warmup_hold", "warmup_steps"}
    dump = dump_identity(trial(**sections))
    assert not names & (dump["optimizer"].keys() | dump["schedule"].keys())


def test_each_option_makes_another_trial_and_survives_a_dump() -> None:
    warm = {"warmup_epochs": 1}
    trials = [
        trial(schedule=warm),
        trial(schedule={**warm, "warmup_hold": []}),
        trial(schedule={**warm, "warmup_steps": 5}),
        trial(schedule={"warmup_steps": 5}),
        trial(schedule={"warmup_steps": 6, "warmup_hold": ["head"]}),
        trial(schedule={**warm, "warmup_hold": ["backbone", "head"]}),
        trial(schedule={**warm, "name": "step"}),
        trial(schedule={**warm, "name": "step", "counted_from": "start"}),
        trial(schedule={**warm, **MULTI}),
        trial(schedule={**warm, **MULTI, "milestones": [2, 6]}),
        trial(optimizer={"name": "sgd"}),
        trial(optimizer=SGD),
        trial(optimizer={"name": "sgd", "dampening": 0.1}),
        trial(optimizer={"weight_decays": {"head": 0}}),
        trial(optimizer={"weight_decays": {"proxies": 0}}),
    ]
    assert len({compute_config_hash(config, "f") for config in trials}) == len(trials)
    for config in trials:
        assert TrialConfig.model_validate(config.model_dump(mode="json")) == config


def test_held_roles_are_one_set_in_any_order() -> None:
    one = ScheduleConfig(warmup_epochs=1, warmup_hold=("head", "backbone", "head"))
    assert one == ScheduleConfig(warmup_epochs=1, warmup_hold=("backbone", "head"))
