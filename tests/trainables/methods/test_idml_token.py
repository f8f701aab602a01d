"""IDML with its uncertainty from a second token: trials of both tasks, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.trainables import core_trials
from trainables import load
from trainables.backbones.extra_token import ExtraTokenViT
from trainables.core.assembly import Network, build_method, build_trial_backbone
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.methods.base import METHODS, Progress, compute_class_logits
from trainables.trial import TrialConfig

BASE: dict[str, Any] = {
    "task": "classification",
    "data": {"name": "digits", "image_size": 32, "split": {"test": 0.7, "validation": 0.5}},
    "backbone": {"name": "test_vit", "weights": "none", "pool": "avg"},
    "embedding": {"dim": 16},
    "loss": {"name": "normsoftmax"},
    "method": {
        "name": "idml",
        "mixing": "cutmix",
        "originals": "replaced",
        "uncertainty_dim": 8,
        "uncertainty_token": "discarded",
    },
    "optimizer": {"lr": 1e-3},
    "training": {"epochs": 1, "batch_size": 64},
}
RETRIEVAL: dict[str, Any] = {
    "task": None,
    "data": {"split": {"test": 0.5, "validation": 0.3}},
    "loss": {"name": "proxy_anchor"},
    "training": {"per_class": 1},
}


def config(**changes: Any) -> TrialConfig:
    return TrialConfig.model_validate(core_trials.merged(BASE, changes))


def method(**options: Any) -> dict[str, Any]:
    return {"method": options}


def plain_twin(trained: Network, trial: TrialConfig) -> Network:
    """The same weights without a second token, answering by the same head."""
    ordinary = config(**method(uncertainty_token=None))
    assert trial.backbone == ordinary.backbone
    backbone = build_trial_backbone(ordinary, 0)
    mine = trained.backbone
    assert isinstance(mine, ExtraTokenViT)
    state = {name: value for name, value in mine.state_dict().items() if name != "token"}
    backbone.load_state_dict(state)
    return Network(ordinary, backbone, trained.method, backbone.features).eval()


def test_classification_answers_without_it(shared_cache: Path, tmp_path: Path) -> None:
    trial = config()
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    network = trainer.network
    assert isinstance(network.backbone, ExtraTokenViT)
    first = network.backbone.token.detach().clone()
    (report,) = trainer.train_epochs()
    assert not torch.equal(network.backbone.token, first)
    assert report.metrics["observed/uncertainty_mixed"] > 0
    final = trainer.finish(("test",))
    assert final.evaluations["test"]["uncertainty_original"] > 0
    network.eval()
    block = next(iter(trainer.inputs.iterate_blocks(trainer.splits.test)))
    with torch.no_grad():
        ordinary = plain_twin(network, trial).logits(block)
        assert torch.equal(network.logits(block), ordinary)
        # Its export too, and not because the token had nothing to say.
        exported = load(tmp_path / "best.safetensors", device="cpu")
        assert torch.equal(exported.network.logits(block), ordinary)
        in_sequence = compute_class_logits(network.method, network.features(block))
        assert not torch.equal(in_sequence, ordinary)


def test_retrieval_with_the_token_kept(shared_cache: Path) -> None:
    options = method(uncertainty_token="kept", test_metric="introspective")
    trial = config(**RETRIEVAL, **options, embedding={"init": "pca"})
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
    (report,) = trainer.train_epochs()
    assert report.metrics["val/recall_at_1"] > 0.3, report.metrics["val/recall_at_1"]
    block = next(iter(trainer.inputs.iterate_blocks(trainer.splits.test)))
    with torch.inference_mode():
        assert trainer.network.eval().embed(block).shape[1] == 24


def test_its_uncertainty_is_of_the_tokens_output() -> None:
    trial = config(**method(mixing="none"))
    made = METHODS["idml"]
    built = build_method(trial, features=128, classes=4, seed=0)
    assert isinstance(built, made)
    f = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    other = f.clone()
    other[:, 64:] += 1
    s, u = built._split_parts(query(built, f))
    s_other, u_other = built._split_parts(query(built, other))
    assert torch.equal(s, s_other) and torch.equal(s, built.head(f[:, :64]))
    assert not torch.equal(u, u_other) and torch.equal(u, built.uncertainty(f[:, 64:]))


def query(built: Any, features: torch.Tensor) -> torch.Tensor:
    labels, generator = torch.zeros(len(features), 1, dtype=torch.long), torch.Generator()
    return built(features, labels, Progress(), generator).query  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"backbone": {"mode": "frozen"}, **method(mixing="none")},
            "discarded needs backbone.mode finetune",
        ),
        (method(metric="plain"), "discarded needs .* a method.metric other than plain"),
        (method(test_metric="introspective"), "uncertainty_token discarded removes it"),
        (
            {"backbone": {"name": "resnet18"}},
            "backbone.name: .* resnet18 is not one .*its features",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**changes)
