"""A job and its envelope arrive as they were sent, or not at all."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from trainables.core.components import Code
from trainables.core.runtime import Runtime
from trainables.jobs.request import Fold, Job, Leader, Payload
from trainables.words.errors import ConfigError

JOB = Job(
    trial_id="t",
    config={"optimizer": {"lr": 1e-4, "betas": [0.9, 0.999]}, "schedule": None, "free": {}},
    seed=3,
    runtime=Runtime("cpu", 1, Path("/cache"), Path("/trials/t"), 0.5, "run"),
    evaluate=("val", "test"),
    metrics=("density",),
    mode="ensemble",
    until=2,
    members=(Fold({"a": 1}, 0, Path("/trials/u/best.safetensors")),),
    source=Code({"core": "ab", "loss.mine": None}, {"core": "1"}, {"core": ("ab", "cd")}),
)
PAYLOAD = Payload(JOB, "module:function", True, Leader("host", 7, 1.5))


def test_it_arrives_as_it_was_sent() -> None:
    assert Payload.parse(PAYLOAD.to_text()) == PAYLOAD
    assert pickle.loads(pickle.dumps(PAYLOAD)) == PAYLOAD
    plain = Job("t", {}, 0, Runtime("cpu", None, Path("c")))
    assert Job.from_dict(json.loads(json.dumps(plain.to_dict()))) == plain


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "pilot"),
        ("seed", "x"),
        ("until", "stop"),
        ("runtime", None),
        ("more", 1),
        ("members", [{"config": {}, "seed": 0, "export": "x", "more": 1}]),
        ("members", [{"config": {}, "seed": 0}]),
    ],
)
def test_a_value_of_another_type_and_an_unknown_field_are_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"job\.{name}.*same code on every machine"):
        Job.from_dict({**JOB.to_dict(), name: value})
