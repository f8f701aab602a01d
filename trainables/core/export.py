"""Write and read a trained model's file, one safetensors file (`trained_model.py` loads it).

The file's metadata holds the trial's configuration, and a digest of it and of every tensor, which
detects damage. The export of a fine-tuned trial is complete. That of a trial on frozen features has
head, method and loss, and names the backbone and its weights, from which it is built again. The
export of a trial that trained a part of the backbone, such as adapters, has that part too, and the
digest of the weights that it lacks.
"""

import hashlib
import json
import reprlib
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from trainables.core.assembly import Network
from trainables.data.splits import Subset
from trainables.trial import TrialConfig
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError
from trainables.words.files import open_regular, write_atomically

FORMAT = "ablate-2"
KEY = "ablate"  # the only metadata key, because safetensors writes several in random order
MOST_BYTES = 2**33  # per file; the largest backbones of timm have 2 × 10⁹ parameters
DAMAGED = "The file is damaged: copy it again, or train the trial again with --force"


class _Metadata(BaseModel):
    """Metadata of an untrusted export, checked for types and ranges; `config` is checked later."""

    model_config = ConfigDict(strict=True)

    format: Literal["ablate-2"]
    config: dict[str, Any]
    features: int = Field(ge=1, le=2**20)
    classes: list[Annotated[str, Field(max_length=10_000)]] = Field(min_length=1)
    frame: float = Field(gt=0, le=1, allow_inf_nan=False)
    base_sha256: str | None = None


def write_export(path: Path, network: Network, config: TrialConfig, train: Subset) -> None:
    """Write a model's file: the network's weights, the trial's configuration, and class names."""
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "config": config.model_dump(mode="json"),
        "features": network.width,
        "classes": list(train.classes),
        "frame": train.images.frame,  # share of an image's short side that evaluation crops
    }
    if (base_sha256 := compute_base_digest(network)) is not None:
        metadata["base_sha256"] = base_sha256
    state = network.collect_trained_state()
    tensors = {name: tensor.detach().to("cpu").contiguous() for name, tensor in state.items()}
    text = to_canonical_json(metadata | {"sha256": _compute_digest(metadata, tensors)})
    write_atomically(path, save(tensors, metadata={KEY: text}))


def load_weights(network: Network, path: Path) -> None:
    """Load an export's tensors into the network of its trial."""
    metadata, weights = read_export(path)
    check_base(network, metadata.base_sha256, str(path))
    network.load_trained_state(weights)


def compute_base_digest(network: Network) -> str | None:
    """Return the SHA-256 of the weights that a network's export lacks, or None if it lacks none."""
    base = {name: tensor.cpu().contiguous() for name, tensor in network.collect_base().items()}
    return _compute_digest({}, base) if base else None


def check_base(network: Network, sha256: str | None, file: str) -> None:
    """Refuse `file`, made with base weights of digest `sha256`, if the network's differ."""
    actual = compute_base_digest(network)
    if actual != sha256:
        raise ConfigError(
            "backbone.weights",
            f"the weights here have the digest {actual}, but {file} was trained on {sha256}",
            "Provide the weights of its training",
        )


def read_export(path: Path) -> tuple[_Metadata, dict[str, Tensor]]:
    """Read a trained model's file, verify its digest, and return metadata and tensors by name."""
    try:
        # refuse a FIFO, at which safetensors would wait
        open_regular(path, most_bytes=MOST_BYTES).close()
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(KEY, "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, MemoryError) as error:
        cause = getattr(error, "strerror", None) or str(error) or "too large for the memory here"
        raise ConfigError(
            str(path), f"This is no best.safetensors of a trial ({cause})", "Give the path of one"
        ) from error
    # ValueError: the metadata is no JSON; RecursionError: the JSON is nested too deeply
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ConfigError(
            str(path),
            f"This is no safetensors file ({error})",
            "Give the path of a best.safetensors",
        ) from error
    file_format = metadata.get("format") if isinstance(metadata, dict) else None
    if file_format != FORMAT:
        raise ConfigError(
            str(path),
            f"The file's format is {reprlib.repr(file_format)} instead of {FORMAT!r}",
            "Give the path of a best.safetensors",
        )
    if metadata.pop("sha256", None) != _compute_digest(metadata, weights):
        raise ConfigError(
            str(path),
            "The SHA-256 of the file's content differs from the SHA-256 that the file states",
            DAMAGED,
        )
    try:
        return _Metadata.model_validate(metadata), weights
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(
            str(path), f"The field {field} of the metadata is wrong ({first['msg']})", DAMAGED
        ) from None


def _compute_digest(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the metadata and of the tensors' names, types, shapes and bytes."""
    digest = hashlib.sha256(to_canonical_json(metadata).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\x1e{name}\x1f{tensor.dtype} {tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
