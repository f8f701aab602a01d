"""An export of an untrained network, as a trial would leave it, without the trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor

from trainables.core import export
from trainables.core.assembly import Network, build_method, build_trial_backbone
from trainables.data.images import Images
from trainables.data.splits import Subset
from trainables.trial import TrialConfig

CLASSES = ("ant", "bee", "cat")


def write(path: Path, **changes: Any) -> Path:
    """changes: of the trial's sections."""
    import torch

    options = {
        "data": {"name": "folder", "root": "/elsewhere", "image_size": 32},
        "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "finetune"},
        "embedding": {"dim": 16},
    }
    config = TrialConfig.model_validate({**options, **changes})
    backbone = build_trial_backbone(config, 0)
    method = build_method(config, features=backbone.features, classes=len(CLASSES), seed=0)
    network = Network(config, backbone, method, backbone.features)
    none = torch.zeros(0, dtype=torch.int64)
    pixels = torch.zeros((0, 1, 1, 3), dtype=torch.uint8)
    frame = 1.0 if config.data.drawings else config.data.image_size / config.data.eval_side
    subset = Subset(Images.from_equal_sizes(pixels, frame), none, none, CLASSES)
    export.write_export(path, network, config, subset)
    return path


def said(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What an export says of itself, without its digest, and its tensors."""
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()[export.KEY])
    return {key: value for key, value in about.items() if key != "sha256"}, load(path.read_bytes())


def sealed(path: Path, about: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write an export with a digest that fits, whatever it says."""
    digest = {"sha256": export._compute_digest(about, tensors)}
    path.write_bytes(save(tensors, metadata={export.KEY: json.dumps({**about, **digest})}))
    return path
