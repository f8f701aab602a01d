"""A configuration is neutral whether or not it was written before its method had an option."""

from __future__ import annotations

import pytest

from ablate.plan.neutral import is_neutral, options, takes_neutral
from trainables.methods.base import METHODS

IDML = {"name": "idml", **options("idml")}
BEFORE = {key: value for key, value in IDML.items() if value is not None}


def test_the_case_is_one() -> None:
    assert METHODS["idml"].NEUTRAL["uncertainty_token"] is None
    assert BEFORE.keys() < IDML.keys()


@pytest.mark.parametrize("method", [IDML, BEFORE], ids=["all", "before"])
def test_what_is_off_may_be_absent(method: dict[str, object]) -> None:
    assert is_neutral({"method": method})
    taken = {f"method.{key}": value for key, value in method.items() if key != "name"}
    assert takes_neutral({"method": {"name": "idml"}}, [taken])
    for other in ({"tau": 5.0}, {"uncertainty_token": "kept"}):
        assert not is_neutral({"method": method | other})


def test_what_is_not_none_must_be_there() -> None:
    assert not is_neutral({"method": {"name": "idml", "mixing": "none"}})
