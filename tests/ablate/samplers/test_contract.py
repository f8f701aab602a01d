"""Every registered sampler, as `ablate/testing/samplers.py` says."""

from __future__ import annotations

import pytest

from ablate.samplers.sampling import SAMPLERS
from ablate.testing import samplers


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_contract(name: str) -> None:
    samplers.check(name, proposals=7 if name == "gp" else 15)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "gp"])
def test_numbers_alone(name: str) -> None:
    samplers.check(name, space=samplers.NUMBERS, proposals=9)


def test_a_broken_sampler_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the checks cannot pass by looking at nothing."""
    random = SAMPLERS["random"]
    monkeypatch.setattr(random, "propose", lambda self, earlier: {"x": 5.0})
    with pytest.raises(AssertionError, match="not the active axes"):
        samplers.check("random")
    monkeypatch.setattr(
        random, "propose", lambda self, earlier: {"x": 5.0, "y": 1.0, "n": 1, "c": [1, 2]}
    )
    with pytest.raises(AssertionError, match=r"x: 5\.0 is outside the axis"):
        samplers.check("random")
