"""What a trial's process sets for the threads of libraries."""

from __future__ import annotations

import os

import pytest

from trainables.jobs.locked_job import limit_threads

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
VARIABLES += ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")  # so that the test's end restores it
        monkeypatch.delenv(variable)


def test_waiting_threads_give_up_their_core_soon() -> None:
    limit_threads(2)
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert int(os.environ["GOMP_SPINCOUNT"]) < 10_000


@pytest.mark.parametrize(
    ("variable", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "infinite")]
)
def test_what_the_user_chose_stays(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    limit_threads(2)
    assert os.environ[variable] == value
    assert {*VARIABLES[3:]} & {*os.environ} == {variable}
