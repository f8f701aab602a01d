"""Every registered sampler, as `ablate/testing/samplers.py` says."""

from __future__ import annotations

import pytest

from ablate.search.sampling import SAMPLERS
from ablate.testing import samplers


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_contract(name: str) -> None:
    named = {"name": name, "class": "QMCSampler"} if name == "optuna" else name
    samplers.check(named, proposals=7 if name == "gp" else 15)
