"""Build the parts of a trial that the training loop runs, from its configuration."""

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
from trainables.methods.head import load_principal_start
from trainables.trial import TrialConfig

PROCESSES = "resources.processes"


@dataclass(frozen=True)
class Parts:
    """Parts of a trial, on its device.

    Attributes:
        inputs: source of training batches and splits.
        network: backbone, method and loss.
        passes: runs a batch forward and backward, in parts if it must.
        parameters: all parameters that ever train, in the optimiser's order.
        optimizer: with one group for each role.
        generators: random generators of a step, by stream. Augmentation draws on the CPU, so that
            crops are the same on every device; the others draw on the device, to avoid waiting.
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
    """Build all parts of a trial, each from its own random stream of the seed."""
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
    """Seed each random stream for one step, so that a resumed trial draws the same numbers."""
    for name, generator in generators.items():
        generator.manual_seed(streams.derive_seed(seed, name, step))
    if backbone is not None:
        # dropout and stochastic depth of a backbone draw from torch's global generator
        torch.manual_seed(streams.derive_seed(seed, "backbone", step))


def uses_sync_batch_norm(config: TrialConfig, processes: int, device: torch.device) -> bool:
    """Return whether the backbone's BatchNorm layers become SyncBatchNorm."""
    trains = config.backbone.mode == "finetune" and not config.backbone.freeze_bn
    return trains and processes > 1 and device.type == "cuda"


def check_processes(config: TrialConfig, processes: int, *, on_gpus: bool = False) -> None:
    """Refuse several processes where their result would differ from that of one process.

    Args:
        config: the trial's configuration.
        processes: number of processes that train the trial.
        on_gpus: whether each has a GPU; BatchNorm can exchange its statistics only there.

    Raises:
        ConfigError: the trial cannot be shared by these processes.
    """
    if processes == 1:
        return
    backbone, images = config.backbone, config.training.batch_size
    if backbone.mode == "frozen":
        raise ConfigError(
            PROCESSES,
            f"{processes} processes for each trial gain nothing with backbone.mode: frozen, whose "
            "features are cached. Give 1 and run several trials at a time.",
        )
    if images < processes:
        raise ConfigError(
            PROCESSES,
            f"{processes} processes are more than the {images} images of a batch. Give fewer.",
        )
    size = config.data.image_size
    check_parts(
        backbone.name, size, freeze_bn=backbone.freeze_bn, option=PROCESSES, exchanged=on_gpus
    )


@torch.no_grad()
def start_from_data(
    config: TrialConfig, network: Network, inputs: Inputs, splits: Splits, cache: Path
) -> None:
    """Initialise the method from the training features.

    Their principal directions are cached, unless the features depend on the seed, as with a
    backbone without weights or with a second token.
    """
    network.eval()
    features = torch.cat([network.features(block) for block in inputs.iterate_blocks(splits.train)])
    drawn = config.backbone.weights == "none" or isinstance(network.backbone, ExtraTokenViT)
    if network.backbone is None or not drawn:
        network.method.principal = load_principal_start(cache)
    network.method.fit(features)
