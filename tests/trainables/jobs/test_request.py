"""A job and its envelope arrive as they were sent, or not at all."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainables.core.code_version import Code
from trainables.core.runtime import Runtime
from trainables.errors import ConfigError
from trainables.jobs.payload import Leader, Payload
from trainables.jobs.request import Fold, Job

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


def without(given: dict[str, Any], *path: str) -> None:
    for name in path[:-1]:
        given = given[name]
    del given[path[-1]]


def test_what_is_missing_or_unknown_is_named() -> None:
    for path, where in (
        (("job", "seed"), "payload.job: found no seed"),
        (("job", "until"), "payload.job: found no until"),
        (("job", "runtime", "threads"), "payload.job.runtime: found no threads"),
        (("driver", "pid"), "payload.driver: found no pid"),
    ):
        given = PAYLOAD.to_dict()
        without(given, *path)
        with pytest.raises(ConfigError, match=where):
            Payload.from_dict(given)
    for place in ("runtime", "source"):
        given = JOB.to_dict()
        given[place]["more"] = 1
        with pytest.raises(ConfigError, match=rf"job\.{place}: found the unknown more"):
            Job.from_dict(given)
    given = JOB.to_dict()
    given["members"][0]["more"] = 1
    with pytest.raises(ConfigError, match=r"job\.members\.0: found the unknown more"):
        Job.from_dict(given)


@pytest.mark.parametrize(
    ("name", "value"), [("mode", "pilot"), ("seed", "x"), ("until", "stop"), ("runtime", None)]
)
def test_a_value_of_another_type(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"job\.{name}"):
        Job.from_dict({**JOB.to_dict(), name: value})


def test_it_needs_no_torch() -> None:
    """A driver's plan and Ray's own process have jobs, and start in no time."""
    code = "import sys, trainables.jobs.payload; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
