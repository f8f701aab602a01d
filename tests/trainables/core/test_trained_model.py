"""A model's evaluation on its own data and on others: the trial's numbers, and those by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainables import core_trials
from tests.trainables.data import trees
from trainables.backbones.backbone import build_frozen_backbone
from trainables.config.network import BackboneConfig
from trainables.core.runtime import Runtime
from trainables.core.trained_model import (
    Model,
    build_backbone_model,
    build_data_config,
    evaluate_model,
    load_model,
)
from trainables.core.trainer import Trainer
from trainables.data.augment import cut_eval_images
from trainables.data.dataset import load_dataset
from trainables.evaluation.metrics import evaluate_embeddings
from trainables.words.errors import ConfigError
from trainables.words.metrics import AT_END


def evaluate(model: Model, name: str, root: Path | None, cache: Path, partial: bool = True) -> dict:
    data = build_data_config(model.config.data, name, root and str(root), partial)
    return evaluate_model(model, data, cache, AT_END)


def train(root: Path, folder: Path, mode: str) -> tuple[Model, dict[str, float]]:
    config = core_trials.config(root, backbone={"mode": mode}, training={"epochs": 1})
    runtime = Runtime("cpu", 1, folder / "cache", folder / "trial")
    trainer = Trainer(config, 3, runtime)
    for _ in trainer.train_epochs():
        pass
    final = trainer.finish(("test",))
    return load_model(folder / "trial" / "best.safetensors", "cpu"), final.evaluations["test"]


@pytest.mark.parametrize("mode", ["frozen", "finetune"])
def test_on_its_own_data_a_model_has_its_trial_s_numbers_to_the_bit(
    mode: str, tmp_path: Path
) -> None:
    root = core_trials.draw(tmp_path / "birds")
    model, recorded = train(root, tmp_path, mode)
    for given in (None, root):
        row = evaluate(model, "folder", given, tmp_path / "cache")
        assert {name: row[name] for name in AT_END} == recorded
        assert (row["evaluated"], row["trained"]) == ("own test", 0)
    assert row["classes"] == 4 and row["images"] == row["queries"] == 24


def test_on_other_data(tmp_path: Path) -> None:
    """Official test images, or all; classes with names of training classes are counted."""
    model, _ = train(core_trials.draw(tmp_path / "birds"), tmp_path, "finetune")
    cache = tmp_path / "cache"
    shop = evaluate(model, "inshop", trees.inshop(tmp_path / "inshop"), cache)
    assert (shop["evaluated"], shop["classes"], shop["trained"]) == ("test", 6, 0)
    assert (shop["images"], shop["queries"]) == (25, 12)
    # six of these classes have names of the model's data, and four of the six have trained
    more = trees.class_folders(tmp_path / "more", classes=6)
    (more / "class00").rename(more / "new")
    row = evaluate(model, "folder", more, cache)
    shared = {f"class{n:02d}" for n in range(1, 6)} & {*model.classes}
    assert (row["evaluated"], row["classes"], row["trained"]) == ("all", 6, len(shared))
    rows = model.embed(more)
    labels = torch.arange(6).repeat_interleave(6)
    by_hand = evaluate_embeddings(rows, labels, score="cosine", metrics=AT_END[:6])
    assert {name: row[name] for name in by_hand} == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("name", ["inat2018", "gldv2", "gpr1200"])
def test_a_backbone_alone(name: str, tmp_path: Path) -> None:
    config = BackboneConfig(name="mobilenetv3_small_050", weights="none", pool="avg", mode="frozen")
    model = build_backbone_model(config, 32, "cpu")
    make = next(iter(trees.TREES[name].values()))
    row = evaluate(model, name, make(tmp_path / name), tmp_path / "cache")
    assert row["evaluated"] == "test" and row["trained"] is None
    assert row["queries"] == {"inat2018": 24, "gldv2": 3, "gpr1200": 48}[name]
    data = load_dataset(
        build_data_config(model.config.data, name, str(tmp_path / name), True), tmp_path / "cache"
    )
    if name != "gldv2":
        backbone, rows = build_frozen_backbone(config, 32), data.official.test
        inputs = cut_eval_images(
            data.images, rows, size=32, mean=backbone.mean, std=backbone.std, device="cpu"
        )
        by_hand = evaluate_embeddings(
            backbone(inputs), data.labels[rows], score="cosine", metrics=AT_END[:6]
        )
        assert {name: row[name] for name in by_hand} == pytest.approx(by_hand, abs=1e-9)


def test_incomplete_and_unfit_data_are_refused(tmp_path: Path) -> None:
    config = BackboneConfig(name="mobilenetv3_small_050", weights="none", mode="frozen")
    model = build_backbone_model(config, 32, "cpu")
    with pytest.raises(ConfigError, match="--allow-partial"):
        evaluate(model, "gpr1200", trees.gpr1200(tmp_path / "gpr"), tmp_path / "cache", False)
    single = trees.class_folders(tmp_path / "single", each=1)
    with pytest.raises(ConfigError, match="all 14 classes have one image each"):
        evaluate(model, "folder", single, tmp_path / "cache")
