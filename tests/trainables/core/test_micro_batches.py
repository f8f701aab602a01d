"""A batch through the backbone in parts: the loss and the gradients of the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ablate.testing import methods as contract
from tests.trainables.components import REQUIRED, loss_options, method_options
from tests.trainables.core import divided_steps as divided
from tests.trainables.core_trials import config
from trainables.core.identity import compute_config_hash
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

CLOSE = 1e-6  # of float64, relative to the largest gradient; what is found is about 1e-15
VIT = {"name": "vit_tiny_patch16_224", "mode": "finetune"}
FINETUNE = {"mode": "finetune"}


@pytest.mark.parametrize("method", list(METHODS))
def test_parts_are_the_whole_batch_with_every_loss(method: str) -> None:
    backbone, compared = divided.transformer(), 0
    for loss in LOSSES:
        if contract.find_refusal(method, loss_options(loss)) is not None:
            continue
        undivided = divided.stepped(backbone, method_options(method), loss)
        parts = divided.stepped(backbone, method_options(method), loss, 5)
        assert divided.max_difference(undivided, parts) < CLOSE, loss
        compared += 1
    assert compared >= 8


def test_parts_are_the_whole_batch_with_similarity_mixup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its draws and the virtual items that compare images of different parts."""
    monkeypatch.setitem(REQUIRED, "recall_at_k", {"simix": True, "temperature": 0.2})
    backbone = divided.transformer()
    undivided = divided.stepped(backbone, "plain", "recall_at_k")
    assert (
        divided.max_difference(undivided, divided.stepped(backbone, "plain", "recall_at_k", 5))
        < CLOSE
    )
    monkeypatch.setitem(REQUIRED, "recall_at_k", {"temperature": 0.2})
    plain = divided.stepped(backbone, "plain", "recall_at_k")
    assert divided.max_difference(undivided, plain) > 1e-3, "mixup changes the step"


@pytest.mark.parametrize("most", [1, 5, 6])
def test_parts_of_a_convolutional_backbone_whose_norms_are_fixed(most: int) -> None:
    backbone = divided.convolutions()
    options = ("dvml", "proxy_anchor")
    undivided = divided.stepped(backbone, *options, side=32, fraction=0.6)
    parts = divided.stepped(backbone, *options, most, side=32, fraction=0.6)
    assert divided.max_difference(undivided, parts) < CLOSE


def test_parts_of_a_backbone_of_which_adapters_train() -> None:
    undivided, parts = (
        divided.stepped(divided.adapted(), "plain", "proxy_anchor", most) for most in (None, 5)
    )
    assert divided.max_difference(undivided, parts) < CLOSE
    trained = {name for name, gradient in parts.items() if gradient is not None}
    assert {name for name in trained if name.startswith("model.")} == {
        name for name in parts if name.endswith(("lora_a", "lora_b"))
    }


def test_four_parts_take_a_quarter_of_the_memory() -> None:
    backbone = divided.transformer()
    undivided, quarter = (
        divided.most_kept_bytes(backbone, None),
        divided.most_kept_bytes(backbone, 12),
    )
    assert undivided > 1e6, "what is measured is there"
    assert quarter < 0.26 * undivided, f"{quarter} of {undivided} bytes"


def trainer_of(root: Path, cache: Path, **changes: Any) -> Trainer:
    return Trainer(config(root, **changes), 0, Runtime("cpu", 1, cache))


@pytest.mark.slow
def test_a_trial_in_parts_is_the_trial(drawn: Path, shared_cache: Path) -> None:
    """The same identity, a warm-up that holds the backbone, and all of the loop."""
    trial: dict[str, Any] = {
        "backbone": FINETUNE,
        "method": {"name": "idml"},
        "schedule": {"warmup_epochs": 1},
        "training": {"epochs": 2},
    }
    undivided = trainer_of(drawn, shared_cache, **trial)
    trial["training"]["micro_batch"] = 5
    parts = trainer_of(drawn, shared_cache, **trial)
    assert compute_config_hash(undivided.config, "data") == compute_config_hash(
        parts.config, "data"
    )
    assert "micro_batch" not in undivided.describe_provenance()
    assert parts.describe_provenance()["micro_batch"] == 5
    for one, other in zip(undivided.train_epochs(), parts.train_epochs(), strict=True):
        assert other.metrics["train/loss"] == pytest.approx(one.metrics["train/loss"], rel=1e-4)
    for name, weight in undivided.network.state_dict().items():
        torch.testing.assert_close(parts.network.state_dict()[name], weight, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    ("backbone", "fault"),
    [
        ({"mode": "frozen"}, "backbone.mode: frozen"),
        ({**FINETUNE, "freeze_bn": False}, "norms .BatchNormAct2d. use statistics of the"),
        (
            {**FINETUNE, "name": "legacy_senet154"},
            "draws random numbers in training .bernoulli_.",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(drawn: Path, backbone: Any, fault: str) -> None:
    with pytest.raises(ValidationError, match=f"training.micro_batch: .*{fault}"):
        config(drawn, backbone=backbone, training={"micro_batch": 4})
