"""Build the parts of a trial that the training loop runs, from its configuration."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trainables.backbones.backbone import Backbone
from trainables.backbones.memory import GradCacheRunner, check_parts, synchronize_batch_norms
from trainables.core.inputs import Features, Inputs, Pictures
from trainables.core.network import Network, build_method, build_trial_backbone
from trainables.core.optimizer import build_optimizer
from trainables.data.splits import Splits
from trainables.machine.devices import check_bf16
from trainables.machine.group import ALONE, Group
from trainables.streams import derive_seed
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

PROCESSES = "resources.processes"


@dataclass(frozen=True)
class Parts:
    """Parts of a trial, on its device."""

    inputs: Inputs  # source of training batches and splits
    network: Network  # backbone, method and loss
    passes: GradCacheRunner  # runs a batch forward and backward, in parts if it must
    parameters: list[nn.Parameter]  # all that ever train, in the optimiser's order
    optimizer: torch.optim.Optimizer  # with one group for each role
    generators: dict[str, torch.Generator]  # random generators of a step, by stream


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
    # build backbone and inputs
    backbone: Backbone | None = None
    inputs: Inputs
    if config.backbone.mode == "frozen":
        inputs = Features(config, splits, cache, device)
    else:
        if config.training.precision == "bf16":
            check_bf16(device)
        backbone = build_trial_backbone(config, seed)
        if group.size > 1 and device.type == "cuda" and not config.backbone.freeze_bn:
            synchronize_batch_norms(backbone, group.tensors)  # of all GPUs
        inputs = Pictures(config, splits, backbone, device)

    # build the network and what trains it
    classes = len(splits.train.classes)
    method = build_method(config, features=inputs.width, classes=classes, seed=seed)
    network = Network(config, backbone, method, inputs.width).to(device)
    passes = GradCacheRunner(  # passes large batches through the backbone in parts
        network.features,
        backbone,
        method,
        group=group,
        most=config.training.micro_batch,
        checkpointed=bool(config.training.checkpointing),
    )
    groups = network.param_groups("main")
    parameters = [parameter for part in groups for parameter in part.params]
    optimizer = build_optimizer(config.optimizer, groups)
    generators = {name: torch.Generator(device) for name in ("prepare", "method", "loss")}
    generators["augment"] = torch.Generator("cpu")  # so that crops are the same on every device
    return Parts(inputs, network, passes, parameters, optimizer, generators)


def seed_step(
    generators: dict[str, torch.Generator], seed: int, step: int, backbone: nn.Module | None
) -> None:
    """Seed each random stream for one step, so that a resumed trial draws the same numbers."""
    for name, generator in generators.items():
        generator.manual_seed(derive_seed(seed, name, step))
    if backbone is not None:
        # dropout and stochastic depth of a backbone draw from torch's global generator
        torch.manual_seed(derive_seed(seed, "backbone", step))


def check_processes(config: TrialConfig, processes: int, *, on_gpus: bool = False) -> None:
    """Refuse several processes if they gain nothing, or give another result than one process.

    BatchNorm can exchange its statistics only if each process has a GPU (`on_gpus`).
    """
    if processes == 1:
        return
    backbone, images = config.backbone, config.training.batch_size
    if backbone.mode == "frozen":
        raise ConfigError(
            PROCESSES,
            f"{processes} processes gain nothing with backbone.mode: frozen and cached features",
            "Give 1 process, and run several trials at a time",
        )
    if images < processes:
        raise ConfigError(
            PROCESSES,
            f"{processes} processes are more than the {images} images of a batch",
            f"Give at most {images} processes",
        )
    # refuse a backbone in which an image's features depend on other images of the batch
    options = {"freeze_bn": backbone.freeze_bn, "exchanged": on_gpus}
    check_parts(backbone.name, config.data.image_size, option=PROCESSES, **options)
