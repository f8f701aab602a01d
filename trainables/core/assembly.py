"""The parts of a trial, put together from its configuration; what the loop then runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trainables.backbones.passes import Passes
from trainables.core.inputs import Features, Inputs, Pictures
from trainables.core.network import Network, build_method, build_trial_backbone
from trainables.core.optimizer import build_optimizer
from trainables.data.splits import Splits
from trainables.methods.principal import kept_start
from trainables.trial import TrialConfig


@dataclass(frozen=True)
class Parts:
    """All on the trial's device.

    passes: how a step's images go through the network's backbone.
    parameters: all that ever trains, in the optimiser's order.
    generators: of a step's draws by stream. Boxes and flips are drawn on the CPU, so that a
        trial sees the same crops anywhere; the rest where it is used, so that nothing waits.
    """

    inputs: Inputs
    network: Network
    passes: Passes
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    generators: dict[str, torch.Generator]


def assemble(
    config: TrialConfig, seed: int, splits: Splits, cache: Path, device: torch.device
) -> Parts:
    """Build each part from its own stream of the seed.

    Raises:
        ConfigError: options that do not fit the data or each other.
    """
    backbone = None
    inputs: Inputs
    if config.backbone.mode == "frozen":
        inputs = Features(config, splits, cache, device)
    else:
        backbone = build_trial_backbone(config, seed)
        inputs = Pictures(config, splits, backbone, device)
    method = build_method(
        config, features=inputs.width, classes=len(splits.train.classes), seed=seed
    )
    network = Network(config, backbone, method, inputs.width).to(device)
    groups = network.param_groups("main")
    return Parts(
        inputs=inputs,
        network=network,
        passes=Passes(
            network.features,
            backbone,
            most=config.training.micro_batch,
            checkpointed=bool(config.training.checkpointing),
        ),
        parameters=[parameter for group in groups for parameter in group.params],
        optimizer=build_optimizer(config.optimizer, groups, device),
        generators={
            name: torch.Generator("cpu" if name == "augment" else device)
            for name in ("augment", "prepare", "method", "loss")
        },
    )


@torch.no_grad()
def start_from_data(network: Network, inputs: Inputs, splits: Splits, cache: Path) -> None:
    """Let the method start from the training features.

    Of cached features the principal directions are kept in the cache: trials have them in common.
    Those of a backbone that trains may be its seed's alone.
    """
    network.eval()
    blocks = inputs.blocks(splits.train)
    features = torch.cat([network.features(block) for block in blocks])
    if network.backbone is None:
        network.method.principal = kept_start(cache)
    network.method.fit(features)
