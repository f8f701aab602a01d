"""Trials that shared a program, by `training.packed`: refused in specs, readable for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ablate import api
from ablate.cli.main import main
from ablate.engine.settings import Outcome
from ablate.plan import resolve
from tests.ablate import driven, specs
from tests.trainables.core import exported
from trainables import load
from trainables.core.identity import compute_config_hash, dump_identity
from trainables.errors import ConfigError
from trainables.trial import TrialConfig

PACKED = {"backbone": {"mode": "frozen"}, "training": {"packed": 8}}


def grid(**trial: Any) -> dict[str, Any]:
    spec = specs.spec(seeds=2)
    spec["trial"] |= {"backbone.mode": "frozen", **trial}
    spec["studies"] = {"grid": spec["studies"]["grid"]}
    return spec


@pytest.mark.parametrize("where", ["trial", "grid", "--set"])
def test_a_spec_that_packs_is_refused(where: str) -> None:
    spec, settings = grid(**{"training.packed": 8} if where == "trial" else {}), {}
    if where == "grid":
        spec["studies"]["grid"]["grid"] = {"training.packed": [None, 8]}
    if where == "--set":
        settings = {"training.packed": 8}
    with pytest.raises(ConfigError) as refused:
        specs.plan(spec, settings=settings)
    text = str(refused.value)
    assert where in text and "was removed in 0.2.0" in text
    assert "Leave the key out" in text


def test_the_identity_of_a_packed_trial_is_what_it_was() -> None:
    config = TrialConfig.model_validate(PACKED)
    assert dump_identity(config)["training"]["packed"] == 8
    expected = "9aaa46f4355f80e13517221a312240bf67ecf4c81ed4a1cc1fb2fcaa4a26a3ca"  # by 0.1.0
    assert compute_config_hash(config, "data") == expected


def test_a_ledger_of_packed_trials_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As 0.1.0 has left one."""
    with monkeypatch.context() as before:
        before.setattr(resolve, "PACKED", "no.such.key")
        plan = specs.plan(grid(**{"training.packed": 8}))
        driven.run(plan, tmp_path)
    outcome = Outcome(plan.sweep_id, 0, {}, {}, {}, {}, None, out_of_time=False)
    results = api.Results(outcome, tmp_path / "ledger.sqlite")
    assert list(results.frame["status"]) == ["done"] * 8
    assert results.best("grid").config["training"]["packed"] == 8
    for words in (["best", "small", "grid"], ["ledger", "export"]):
        assert main([*words, "--out", str(tmp_path)]) == 0, capsys.readouterr()


def test_a_packed_trials_export_loads_and_embeds(tmp_path: Path) -> None:
    path = exported.write(tmp_path / "best.safetensors")
    about, tensors = exported.said(path)
    about["config"]["training"]["packed"] = 8
    exported.sealed(path, about, tensors)
    rows = load(path, device="cpu").embed(torch.zeros((2, 32, 32, 3), dtype=torch.uint8))
    assert rows.shape == (2, 16) and bool(rows.isfinite().all())
