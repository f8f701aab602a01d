"""Resolve the resources of a trial, and check that they exist; Ray would wait for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainables.errors import ConfigError
from trainables.machine.processes import count_cores

if TYPE_CHECKING:
    from ablate.spec.model import Resources

KIND = "accelerator_type:"  # Ray's: each node with GPUs has one such resource
MARK = 0.001


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
    def shares(self) -> dict[str, Any]:
        """The fields that the Ray process needs."""
        return {"cpus": self.cpus, "gpus": self.gpus, "accelerator": self.accelerator}

    @classmethod
    def from_shares(cls, shares: Mapping[str, Any]) -> Self:
        """Return a request from its `shares`."""
        return cls(shares["cpus"], shares["gpus"], "", accelerator=shares["accelerator"])

    @property
    def bundle(self) -> dict[str, float]:
        """The resources in Ray's format.

        Each node offers one unit of its accelerator's mark, and a trial takes such a small share of
        it that GPUs run out first.
        """
        marks = {f"{KIND}{self.accelerator}": MARK} if self.accelerator else {}
        return {"cpu": self.cpus, "gpu": self.gpus, **marks}


def count_local_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def resolve_request(resources: Resources, device: str, *, cluster: bool) -> Request:
    """Resolve the spec's resources and `--device` into one request.

    Args:
        cluster: whether to leave the search for GPUs to `check_nodes`.

    Raises:
        ConfigError: a GPU is requested and there is none, a kind of GPU without a cluster, more
            cores than exist, or a number of processes that fits neither.
    """
    gpus = resources.gpus
    wants_gpu = device.startswith("cuda") or bool(gpus)
    if device == "cpu" and gpus:
        fault = f"cpu with resources.gpus: {gpus:g}; leave --device out, or set gpus: 0"
        raise ConfigError("--device", fault)
    if device not in ("auto", "cpu", "cuda") and not device.startswith("cuda:"):
        raise ConfigError("--device", f"{device!r} is none of auto, cpu, cuda and cuda:N")
    if device == "cpu" or (device == "auto" and gpus == 0):
        gpus = 0.0
    elif cluster:
        gpus = gpus or float(wants_gpu)
    else:
        available, needed = count_local_gpus(), gpus or float(wants_gpu)
        if needed > available:
            path = "--device" if device.startswith("cuda") else "resources.gpus"
            fault = f"{needed:g} GPU(s) are asked for, and torch can use {available} here; "
            fault += "run with --device cpu and gpus: 0, or see `ablate doctor`"
            raise ConfigError(path, fault)
        gpus = float(min(1, available)) if gpus is None else needed
    kind = resources.accelerator or ""
    if kind and (gpus == 0 or not cluster):
        where = "without a GPU" if gpus == 0 else "on this machine alone"
        fault = f"{kind} cannot be chosen for trials {where}; leave it out, or give --address and "
        raise ConfigError("resources.accelerator", f"{fault}--device cuda")
    if not cluster and resources.cpus > count_cores():
        fault = (
            f"{resources.cpus:g} are more than the {count_cores()} cores of this machine; "
            f"lower it, "
        )
        raise ConfigError("resources.cpus", f"{fault}or use --address with a larger cluster")
    resolved = "cpu" if gpus == 0 else ("cuda" if device == "auto" else device)
    return Request(resources.cpus, gpus, resolved, count_processes(resources, gpus), kind)


def count_processes(resources: Resources, gpus: float) -> int:
    """Return how many processes train one trial with this number of GPUs.

    Raises:
        ConfigError: the spec asks for another number than that of the GPUs, or for more than the
            cores.
    """
    processes = resources.processes
    if processes is None:
        return max(1, int(gpus))
    shares, limit = ("gpus", gpus) if gpus else ("cpus", resources.cpus)
    if processes > 1 and (gpus != processes if gpus else processes > limit):
        fault = f"{processes} do not go with {shares}: {limit:g}; set resources.{shares}: "
        raise ConfigError("resources.processes", f"{fault}{processes}, or leave processes out")
    return processes


def request_without_local_check(resources: Resources, device: str) -> Request:
    """Return the request of a trial for machines that cannot be inspected here."""
    on_cpu = device == "cpu" or (device == "auto" and resources.gpus == 0)
    processes = count_processes(resources, 0.0 if on_cpu else resources.gpus or 0.0)
    if processes > 1 or resources.accelerator:
        demand = f"{processes} processes per trial" if processes > 1 else resources.accelerator
        fault = f"{demand} cannot be had without a driver, where a trial is one process on the "
        fault += "machine that it is started on; leave it out, or use `ablate run`"
        raise ConfigError("resources", fault)
    return Request(resources.cpus, 0.0, "cpu" if on_cpu else device)


def count_fitting_here(request: Request) -> int:
    """Return how many trials fit on this machine at once, at least one."""
    gpus = count_local_gpus() if request.gpus else 0
    return max(1, count_fitting(request, {"CPU": count_cores(), "GPU": gpus}))


def check_nodes(request: Request, nodes: Iterable[Mapping[str, float]]) -> float:
    """Return how many trials fit on a cluster's nodes at once.

    Raises:
        ConfigError: no node is large enough for one trial.
    """
    nodes = list(nodes)
    if count := sum(count_fitting(request, node) for node in nodes):
        return float(count)
    remedy = "ask for less, add a node, or wait for one that is starting, and start again"
    kinds = {name.removeprefix(KIND) for node in nodes for name in node if name.startswith(KIND)}
    if request.accelerator and request.accelerator not in kinds:
        kinds_there = ", ".join(sorted(kinds)) or "none of a known kind"
        fault = f"no node has the GPU {request.accelerator}; there are {kinds_there}; {remedy}"
        raise ConfigError("resources.accelerator", fault)
    cpus, gpus = (
        max((node.get(name, 0.0) for node in nodes), default=0.0) for name in ("CPU", "GPU")
    )
    kind = request.accelerator or "GPU(s)"
    fault = f"{request.cpus:g} CPU(s) and {request.gpus:g} {kind} per trial fit "
    fault += f"on no node; the largest node has {cpus:g} CPU(s) and {gpus:g} GPU(s); {remedy}"
    raise ConfigError("resources", fault)


def count_fitting(request: Request, node: Mapping[str, float]) -> int:
    """Return how many trials fit on a node at once."""
    if request.accelerator and f"{KIND}{request.accelerator}" not in node:
        return 0
    cpus, gpus = node.get("CPU", 0.0), node.get("GPU", 0.0)
    shares = [cpus / request.cpus] + ([gpus / request.gpus] if request.gpus else [])
    return int(min(shares) + 1e-9)  # 1 // 0.1 is 9: what lacks a billionth counts as whole
