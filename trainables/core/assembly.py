"""The parts of a trial, put together from its configuration; what the loop then runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trainables import streams
from trainables.backbones.backbone import Backbone
from trainables.backbones.extra_token import ExtraTokenViT
from trainables.backbones.grad_cache import GradCacheRunner
from trainables.backbones.memory import check_parts, synchronize_batch_norms
from trainables.core.inputs import Features, Inputs, Pictures
from trainables.core.network import Network, build_method, build_trial_backbone
from trainables.core.optimizer import build_optimizer
from trainables.data.splits import Splits
from trainables.errors import ConfigError
from trainables.machine.devices import check_bf16
from trainables.machine.group import ALONE, Group
from trainables.methods.principal import load_principal_start
from trainables.trial import TrialConfig

PROCESSES = "resources.processes"


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
    passes: GradCacheRunner
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    generators: dict[str, torch.Generator]


def assemble_parts(
    config: TrialConfig,
    seed: int,
    splits: Splits,
    cache: Path,
    device: torch.device,
    *,
    group: Group = ALONE,
) -> Parts:
    """Build each part from its own stream of the seed."""
    backbone: Backbone | None = None
    inputs: Inputs
    if config.backbone.mode == "frozen":
        inputs = Features(config, splits, cache, device)
    else:
        if config.training.precision == "bf16":
            check_bf16(device)
        backbone = build_trial_backbone(config, seed)
        if uses_sync_batch_norm(config, group.size, device):
            synchronize_batch_norms(backbone, group.tensors)
        inputs = Pictures(config, splits, backbone, device)
    classes = len(splits.train.classes)
    method = build_method(config, features=inputs.width, classes=classes, seed=seed)
    network = Network(config, backbone, method, inputs.width).to(device)
    groups = network.param_groups("main")
    return Parts(
        inputs=inputs,
        network=network,
        passes=GradCacheRunner(
            network.features,
            backbone,
            method,
            group=group,
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


def seed_step(
    generators: dict[str, torch.Generator], seed: int, step: int, backbone: nn.Module | None
) -> None:
    """Let each stream begin anew at a step."""
    for name, generator in generators.items():
        generator.manual_seed(streams.derive_seed(seed, name, step))
    if backbone is not None:
        # Dropout and stochastic depth of a backbone draw from torch's global generator.
        torch.manual_seed(streams.derive_seed(seed, "backbone", step))


def uses_sync_batch_norm(config: TrialConfig, processes: int, device: torch.device) -> bool:
    """Return whether the norms of a backbone that trains are SyncBatchNorm."""
    trains = config.backbone.mode == "finetune" and not config.backbone.freeze_bn
    return trains and processes > 1 and device.type == "cuda"


def check_shared(config: TrialConfig, processes: int, *, on_gpus: bool = False) -> None:
    """Refuse several processes that would not come to what one would come to.

    Args:
        on_gpus: each has a GPU, where BatchNorm in training can exchange its statistics.
    """
    if processes == 1:
        return
    backbone, images = config.backbone, config.training.batch_size
    if backbone.mode == "frozen":
        raise ConfigError(
            PROCESSES,
            f"{processes} a trial gain nothing with backbone.mode: frozen, whose features are "
            "cached: give one, and run several trials side by side",
        )
    if images < processes:
        raise ConfigError(PROCESSES, f"{processes} are more than the {images} images of a batch")
    size = config.data.image_size
    check_parts(
        backbone.name, size, freeze_bn=backbone.freeze_bn, option=PROCESSES, exchanged=on_gpus
    )


@torch.no_grad()
def start_from_data(
    config: TrialConfig, network: Network, inputs: Inputs, splits: Splits, cache: Path
) -> None:
    """Let the method start from the training features.

    Their principal directions are kept in the cache, except of a backbone without weights, or with
    a second token, whose features are its seed's alone.
    """
    network.eval()
    features = torch.cat([network.features(block) for block in inputs.iterate_blocks(splits.train)])
    drawn = config.backbone.weights == "none" or isinstance(network.backbone, ExtraTokenViT)
    if network.backbone is None or not drawn:
        network.method.principal = load_principal_start(cache)
    network.method.fit(features)
