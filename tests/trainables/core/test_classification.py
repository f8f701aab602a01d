"""A trial of classification: what it reads, selects by, keeps, and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.trainables import core_trials
from tests.trainables.core.digits_case import SMALL
from trainables import load
from trainables.core.identity import compute_config_hash, dump_identity
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.evaluation.tasks import TASKS, get_task
from trainables.losses.softmax import Softmax
from trainables.methods.plain import Plain
from trainables.trial import TrialConfig


def config(**changes: Any) -> TrialConfig:
    return TrialConfig.model_validate(core_trials.merged(SMALL, changes))


def test_a_trial_learns_and_reads_accuracies(shared_cache: Path, tmp_path: Path) -> None:
    trial = config(training={"epochs": 4})
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    reports = list(trainer.train_epochs())
    read = {name for name in reports[0].metrics if name.startswith(("val/", "best/"))}
    assert read == {"val/top_1_accuracy", "val/top_5_accuracy", "best/val/top_1_accuracy"}
    final = trainer.finish(("val", "test"))
    best = max(report.metrics["val/top_1_accuracy"] for report in reports)
    assert final.evaluations["val"]["top_1_accuracy"] == best > 0.3
    # By hand, of the selected weights and one image after the other.
    splits, network = trainer.splits, trainer.network.eval()
    (block,) = trainer.inputs.iterate_blocks(splits.test)
    with torch.no_grad():
        logits = torch.cat([network.logits(row[None]) for row in block])
        z = torch.cat([network.embed(row[None]) for row in block])
        w = torch.nn.functional.normalize(network.method.loss.weights, dim=1)
    torch.testing.assert_close(logits, z @ w.T)
    for k in (1, 5):
        hits = sum(
            int(label) in sorted(range(10), key=lambda c, row=row: -row[c])[:k]
            for row, label in zip(logits.tolist(), splits.test.labels.tolist(), strict=True)
        )
        assert final.evaluations["test"][f"top_{k}_accuracy"] == pytest.approx(hits / len(z))


def products(trainer: Trainer, split: str) -> torch.Tensor:
    """⟨z, w⟩ + b of a split's images: what the loss softmax takes in training."""
    network = trainer.network.eval()
    method = network.method
    assert isinstance(method, Plain) and isinstance(method.loss, Softmax)
    assert method.loss.bias is not None
    with torch.no_grad():
        blocks = trainer.inputs.iterate_blocks(trainer.splits[split])
        z = torch.cat([method.head(network.features(block)) for block in blocks])
        assert method.loss.bias.abs().max() > 1e-2 and (z.norm(dim=1) - 1).abs().min() > 0.1
        return z @ method.loss.weights.T + method.loss.bias


def accuracy(logits: torch.Tensor, trainer: Trainer, split: str) -> float:
    return float((logits.argmax(1) == trainer.splits[split].labels).double().mean())


def test_a_softmax_with_a_bias_is_selected_tested_and_exported_as_it_trains(
    shared_cache: Path, tmp_path: Path
) -> None:
    trial = config(loss={"name": "softmax"})
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    for report in trainer.train_epochs():
        by_hand = accuracy(products(trainer, "val"), trainer, "val")
        assert report.metrics["val/top_1_accuracy"] == pytest.approx(by_hand)
    final = trainer.finish(("test",))
    logits = products(trainer, "test")
    by_hand = accuracy(logits, trainer, "test")
    assert final.evaluations["test"]["top_1_accuracy"] == pytest.approx(by_hand)
    test = trainer.splits.test
    pixels = torch.stack([test.images[row].squeeze(-1) for row in test.index.tolist()])
    model = load(tmp_path / "best.safetensors", device="cpu")
    torch.testing.assert_close(model.logits(pixels), logits, rtol=1e-3, atol=1e-3)


def test_what_a_task_gives_and_what_is_said_wins() -> None:
    subset = config()
    assert subset.selection.metric == "top_1_accuracy" and subset.training.per_class == 1
    assert subset.data.split.by == "images"
    said = config(selection={"metric": "top_5_accuracy"}, training={"per_class": 2})
    assert said.selection.metric == "top_5_accuracy" and said.training.per_class == 2
    again = TrialConfig.model_validate(json.loads(subset.model_dump_json()))
    assert again == subset and compute_config_hash(again, "f") == compute_config_hash(subset, "f")


def test_retrieval_written_out_is_the_same_trial() -> None:
    spelt = TrialConfig(task="retrieval")
    assert spelt == TrialConfig() and get_task(spelt) is TASKS["retrieval"]
    dump = dump_identity(spelt)
    assert "task" not in dump and "by" not in dump["data"]["split"]
    other = {**SMALL, "task": "retrieval"}
    assert compute_config_hash(TrialConfig.model_validate(other), "f") != compute_config_hash(
        config(), "f"
    )


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"loss": {"name": "proxy_anchor"}}, "loss.name: proxy_anchor"),
        ({"method": {"name": "ddml"}}, "method.name: ddml"),
        ({"method": {"name": "pel", "mixing": "none"}}, "method.name: pel"),
        ({"selection": {"metric": "map_at_r"}}, "cannot select epochs by map_at_r"),
        ({"data": {"split": {"by": "classes"}}}, "cannot split by classes"),
        ({"data": {"split": {"folds": 2, "fold": 0}}}, "folds: "),
        ({"evaluation": {"restarts": 5}}, "evaluation.restarts: "),
        ({"task": None, "data": {"split": {"by": "images"}}}, "cannot split by images"),
        ({"task": None, "selection": {"metric": "top_1_accuracy"}}, "selection.metric"),
        ({"task": "ranking"}, "'retrieval' or 'classification'"),
    ],
)
def test_what_has_no_meaning_is_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        config(**changes)
