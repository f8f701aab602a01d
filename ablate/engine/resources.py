"""Resolve the resources of a trial, and check that they exist, for which Ray would wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.machine.processes import count_cores
from trainables.words.errors import ConfigError

if TYPE_CHECKING:
    from ablate.spec.model import Resources

KIND = "accelerator_type:"  # Ray's: each node with GPUs has one such resource
CHANGE_NODES = "Lower `resources`, add a node, or wait for a node that is starting, and run again"
KIND_SHARE = 0.001  # of that resource for each trial, so that GPUs run out first


@dataclass(frozen=True)
class Request:
    """The resources of one trial.

    Attributes:
        device: as `trainables.core.runtime.Runtime` takes it.
        threads: at least one.
        accelerator: kind of GPU by Ray's name; empty for any.
    """

    cpus: float
    gpus: float
    device: str
    processes: int = 1
    accelerator: str = ""

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    @property
    def bundle(self) -> dict[str, float]:
        """The resources in Ray's format."""
        kind = {f"{KIND}{self.accelerator}": KIND_SHARE} if self.accelerator else {}
        return {"cpu": self.cpus, "gpu": self.gpus, **kind}


def count_local_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def resolve_request(resources: "Resources", device: str, *, cluster: bool) -> Request:
    """Resolve the spec's resources and `--device` into one request.

    Args:
        device: the value of `--device`.
        cluster: whether trials run on a cluster, whose GPUs and cores `check_nodes` checks later.

    Raises:
        ConfigError: a GPU is requested and there is none, a kind of GPU without a cluster, more
            cores than exist, or a number of processes that does not fit the GPUs or cores.
    """
    gpus = resources.gpus
    needed = gpus or float(device.startswith("cuda"))  # `--device cuda` asks for one GPU
    if device == "cpu" and gpus:
        raise ConfigError(
            "--device",
            f"cpu does not go with `resources.gpus: {gpus:g}`",
            "Leave --device out, or set `resources.gpus: 0`",
        )
    if device not in ("auto", "cpu", "cuda") and not device.startswith("cuda:"):
        raise ConfigError(
            "--device", f"{device!r} is not a device", "Use auto, cpu, cuda or cuda:N"
        )
    if device == "cpu" or (device == "auto" and gpus == 0):
        gpus = 0.0
    elif cluster:
        gpus = needed
    else:
        available = count_local_gpus()
        if needed > available:
            raise ConfigError(
                "--device" if "cuda" in device else "resources.gpus",
                f"{needed:g} GPU(s) are requested, and torch can use {available} here",
                "Set --device cpu and `resources.gpus: 0`, or see `ablate doctor`",
            )
        gpus = float(min(1, available)) if gpus is None else needed  # by default one, if any
    if resources.accelerator and (gpus == 0 or not cluster):
        trials = "trials without a GPU" if gpus == 0 else "trials on this machine alone"
        raise ConfigError(
            "resources.accelerator",
            f"the GPU {resources.accelerator} cannot be chosen for {trials}",
            "Leave `resources.accelerator` out, or give --address and --device cuda",
        )
    if not cluster and resources.cpus > count_cores():
        raise ConfigError(
            "resources.cpus",
            f"{resources.cpus:g} is more than the {count_cores()} cores of this machine",
            "Lower `resources.cpus`, or give the --address of a larger cluster",
        )
    resolved = "cpu" if gpus == 0 else ("cuda" if device == "auto" else device)
    processes = count_processes(resources, gpus)
    return Request(resources.cpus, gpus, resolved, processes, resources.accelerator or "")


def count_processes(resources: "Resources", gpus: float) -> int:
    """Return how many processes train one trial with this number of GPUs.

    Raises:
        ConfigError: there are not as many GPUs or, without GPUs, fewer cores than processes.
    """
    processes = resources.processes
    if processes is None:
        return max(1, int(gpus))
    unit, amount = ("gpus", gpus) if gpus else ("cpus", resources.cpus)
    fits = amount == processes if gpus else amount >= processes  # one GPU or core for each
    if processes > 1 and not fits:
        raise ConfigError(
            "resources.processes",
            f"{processes} processes need as many {unit}, but a trial has {amount:g} {unit}",
            f"Set `resources.{unit}: {processes}`, or leave `resources.processes` out",
        )
    return processes


def request_without_local_check(resources: "Resources", device: str) -> Request:
    """Return a trial's request for other machines, on which a batch system starts the trials."""
    on_cpu = device == "cpu" or (device == "auto" and resources.gpus == 0)
    processes = count_processes(resources, 0.0 if on_cpu else resources.gpus or 0.0)
    if processes > 1 or resources.accelerator:
        given = "processes" if resources.processes else "gpus" if processes > 1 else "accelerator"
        key, fix = f"resources.{given}", "Set it to 1" if given == "gpus" else "Leave it out"
        raise ConfigError(
            key,
            f"`{key}` needs Ray, and a batch system runs each trial as one process without Ray",
            f"{fix}, or use `ablate run`",
        )
    return Request(resources.cpus, 0.0, "cpu" if on_cpu else device)  # no Ray to assign GPUs


def count_fitting_here(request: Request) -> int:
    """Return how many trials fit on this machine at once, at least one."""
    gpus = count_local_gpus() if request.gpus else 0
    return max(1, count_fitting(request, {"CPU": count_cores(), "GPU": gpus}))


def check_nodes(request: Request, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many trials fit on a cluster's nodes at once; raise ConfigError if none does.

    Each node has its resources by Ray's names, such as {"CPU": 8.0, "GPU": 1.0}.
    """
    if count := sum(count_fitting(request, node) for node in nodes):
        return count
    kinds = {name.removeprefix(KIND) for node in nodes for name in node if name.startswith(KIND)}
    if request.accelerator and request.accelerator not in kinds:
        names = ", ".join(sorted(kinds)) or "no GPUs of a known kind"
        raise ConfigError(
            "resources.accelerator",
            f"no node has the GPU {request.accelerator}; the nodes have {names}",
            CHANGE_NODES,
        )
    cpus = max((node.get("CPU", 0.0) for node in nodes), default=0.0)
    gpus = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
    raise ConfigError(
        "resources",
        f"{request.cpus:g} CPU(s) and {request.gpus:g} {request.accelerator or 'GPU(s)'} per "
        f"trial fit on no node; the largest node has {cpus:g} CPU(s) and {gpus:g} GPU(s)",
        CHANGE_NODES,
    )


def count_fitting(request: Request, node: Mapping[str, float]) -> int:
    """Return how many trials fit at once on a node with resources such as {"CPU": 8.0}."""
    if request.accelerator and f"{KIND}{request.accelerator}" not in node:
        return 0
    counts = [node.get("CPU", 0.0) / request.cpus]
    if request.gpus:
        counts.append(node.get("GPU", 0.0) / request.gpus)
    return int(min(counts) + 1e-9)  # 1 // 0.1 is 9, because 0.1 is a little more than a tenth
