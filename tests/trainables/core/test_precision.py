"""bfloat16: of the backbone alone, on a CPU as on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.core_trials import config
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.machine.devices import check_bf16
from trainables.words.errors import ConfigError


@pytest.mark.slow
def test_the_backbone_alone_computes_in_bfloat16(
    drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in parts as at once; its features differ by that rounding, the method gets float32."""
    actual: list[Tensor] = []
    for precision, micro_batch in (("fp32", None), ("bf16", None), ("bf16", 5)):
        trial: dict[str, Any] = {
            "backbone": {"mode": "finetune"},
            "method": {"name": "nir"},
            "training": {"epochs": 1, "precision": precision, "micro_batch": micro_batch},
        }
        trainer = Trainer(config(drawn, **trial), 0, Runtime("cpu", 1, shared_cache))
        subset, plain = trainer.network.method, type(trainer.network.method).forward
        seen: list[Tensor] = []

        def watched(self: Any, features: Tensor, *args: Any, plain: Any = plain) -> Any:
            assert features.dtype == torch.float32
            assert not torch.is_autocast_enabled("cpu")
            seen.append(features.detach())  # noqa: B023
            return plain(self, features, *args)

        monkeypatch.setattr(type(subset), "forward", watched)
        list(trainer.train_epochs())
        monkeypatch.undo()
        assert all(
            weight.dtype != torch.bfloat16 for weight in trainer.network.state_dict().values()
        )
        actual.append(seen[0])
    exact, rounded, divided = actual
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 0.02
    assert float((divided - exact).norm() / exact.norm()) < 0.02


def test_gpus_without_its_arithmetic_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor is not: it says what it takes, by its seconds."""
    there = {0: (7, 5), 1: (8, 0), 2: (9, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: there[device.index])
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(ConfigError, match=r"compute capability, 7\.5, is below 8\.0"):
        check_bf16(torch.device("cuda", 0))
    for fine in ("cuda:1", "cuda:2", "cpu"):
        check_bf16(torch.device(fine))
