"""Evaluate a trained model, or a backbone alone, on its own or on other data sets.

The evaluation is the `Evaluator`'s, with the image size and preprocessing of the model's trial.
"""

from pathlib import Path
from typing import Any

import torch

from trainables.backbones.backbone import build_frozen_backbone
from trainables.config.images import EMBEDDED, DataConfig
from trainables.config.network import BackboneConfig
from trainables.core.assembly import Features, Inputs, Network, Pictures, build_method
from trainables.core.evaluator import Evaluator
from trainables.core.export import Model
from trainables.data.dataset import Dataset, fingerprint, load_dataset, resolve_data_config
from trainables.data.decode import Range
from trainables.data.splits import Splits, Subset, select_for_evaluation, split_dataset
from trainables.machine.devices import resolve_device
from trainables.machine.group import ALONE
from trainables.trial import TrialConfig


def build_backbone_model(config: BackboneConfig, image_size: int, device: str) -> Model:
    """Return a backbone alone as a model, whose embeddings are its features of unit length."""
    backbone = build_frozen_backbone(config, image_size)
    width = backbone.features
    sections: dict[str, Any] = {"data": {"image_size": image_size}}
    sections |= {"backbone": config.model_copy(update={"mode": "frozen"})}
    trial = TrialConfig(**sections, embedding={"dim": width, "bias": False})
    method = build_method(trial, features=width, classes=1, seed=0)
    with torch.no_grad():
        method.head.weight.copy_(torch.eye(width))  # type: ignore[union-attr,operator]
    target = resolve_device(device)
    network = Network(trial, None, method, width).to(target).eval()
    return Model(network, backbone.to(target), trial, [], 1.0, target)


def build_data_config(
    trained: DataConfig,
    name: str,
    root: str | None,
    allow_partial: bool | None,
    grey_range: Range | None = None,
) -> DataConfig:
    """Return the section `data` for a data set, with the preprocessing of the section `trained`.

    `grey_range` is that of photographs if `trained` has none.
    """
    if name == trained.name:
        values = trained.model_dump()
        recorded = trained.root
        root = root or (recorded if recorded and Path(recorded).exists() else None)
    else:
        names = ["image_size", "eval_resize"]
        names += [] if name in EMBEDDED else ["stored_side", "grey_range", "store"]
        values = {key: getattr(trained, key) for key in names}
    if grey_range is not None and name not in EMBEDDED:
        values["grey_range"] = grey_range
    return resolve_data_config(
        values | {"name": name, "root": root, "allow_partial": allow_partial}
    )


def evaluate_model(
    model: Model, data: DataConfig, cache: Path, metrics: tuple[str, ...]
) -> dict[str, Any]:
    """Compute retrieval metrics of a model on a data set.

    Returns:
        One row of a table: the metrics by name, and before them
        fingerprint: that of the data set.
        evaluated: "own test", the test split of the data on which the model was trained; "test",
            the official test images of other data; or "all", all images of other data.
        classes, images, queries: numbers of what is evaluated; queries are searched images.
        trained: number of the classes whose names are among the model's training classes; None for
            a backbone alone, whose training classes are unknown.
    """
    config = model.config.model_copy(update={"data": data, "task": None})
    dataset = load_dataset(data, cache)
    own = _select_own_test(model, dataset, data)
    subset = select_for_evaluation(dataset) if own is None else own
    digest = dataset.fingerprint or fingerprint(data, cache)
    splits = Splits(subset, None, subset, digest)
    splits.require_splits(("test",))
    inputs: Inputs
    if config.backbone.mode == "frozen":
        inputs = Features(config, splits, cache, model.device)
    else:
        inputs = Pictures(config, splits, model.backbone, model.device)
    evaluator = Evaluator(config, splits, model.network, inputs, device=model.device, group=ALONE)
    official = "all" if dataset.official is None else "test"
    return {
        "evaluated": official if own is None else "own test",
        "classes": len(subset.classes),
        "trained": len({*subset.classes} & {*model.classes}) if model.classes else None,
        "images": len(subset),
        "queries": len(subset) if subset.queries is None else subset.queries,
        "fingerprint": digest,
        **evaluator.compute_metrics("test", metrics),
    }


def _select_own_test(model: Model, dataset: Dataset, data: DataConfig) -> Subset | None:
    """Return the test split of the model's trial if the data are those of the trial, else None."""
    is_candidate = data.name == model.config.data.name and {*model.classes} <= {*dataset.classes}
    if not model.classes or not is_candidate:
        return None
    splits = split_dataset(dataset, model.config.data.split, "")
    return splits.test if splits.train.classes == tuple(model.classes) else None
