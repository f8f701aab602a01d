"""Save and restore a trial's state, atomically and with a digest.

A file holds the SHA-256 of its content and then the content: a `torch.save` of tensors, numbers and
strings, read with `weights_only=True`. The two newest states stay, with the best weights that they
refer to. The best weights seldom change and therefore have a separate file, written first.
"""

import hashlib
import io
import logging
from pathlib import Path
from typing import Any

import torch

from trainables.words.errors import ConfigError
from trainables.words.files import write_atomically

LOG = logging.getLogger(__name__)
KEPT_STATES = 2
FORMAT = 1


class DamagedCheckpoint(Exception):
    """A checkpoint file is truncated, altered or missing."""


class Checkpoints:
    """Checkpoints of one trial; a checkpoint of another configuration or seed is refused."""

    def __init__(self, folder: Path, config_hash: str, seed: int) -> None:
        self.folder = folder
        self.identity = {"format": FORMAT, "config_hash": config_hash, "seed": seed}

    def save_state(self, steps: int, state: dict[str, Any], best: dict[str, Any] | None) -> None:
        """Write a trial's state after `steps` optimiser steps, then delete old checkpoints.

        `best` is {"epoch": int, "value": float, "weights": state dict}, or None before the first
        evaluation.
        """
        best_epoch = 0 if best is None else int(best["epoch"])
        best_path = self._locate_best(best_epoch)  # its name is part of the state's name below
        if best is not None and not best_path.exists():  # best weights change seldom
            _write(best_path, best)
        content = {**self.identity, "best": best_epoch, "state": state}
        _write(self.folder / f"steps-{steps:010d}-{best_path.name}", content)
        self._delete_old()

    def load_latest(self) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
        """Return (state, best) of the newest intact checkpoint, or None if there is none."""
        for path in reversed(self._list_states()):
            try:
                content = _read_verified(path)
                stored = {key: content.get(key) for key in self.identity}
                if stored != self.identity:
                    raise ConfigError(
                        str(path),
                        f"This checkpoint belongs to {stored}, not to {self.identity}",
                        "Give another output folder, or remove the folder of the checkpoint",
                    )
                has_best = content["best"] > 0  # epochs count from 1
                best = _read_verified(self._locate_best(content["best"])) if has_best else None
                return content["state"], best
            except DamagedCheckpoint as damage:
                LOG.warning("%s. The trial resumes from the previous checkpoint instead.", damage)
        return None

    def _list_states(self) -> list[Path]:
        return sorted(self.folder.glob("steps-*.pt"))

    def _locate_best(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch:06d}.pt"

    def _delete_old(self) -> None:
        """Delete all but the newest states and the files of best weights that they refer to."""
        states = self._list_states()
        # the name of a state ends with the epoch of its best weights
        used = {f"best-{path.stem.rpartition('-')[2]}.pt" for path in states[-KEPT_STATES:]}
        unused = [path for path in self.folder.glob("best-*.pt") if path.name not in used]
        for path in (*states[:-KEPT_STATES], *unused):
            path.unlink(missing_ok=True)


def clone_to_own_storage(state: Any) -> Any:
    """Return `state` with views of larger storages copied: `torch.save` writes whole storages."""
    if isinstance(state, torch.Tensor):
        return state if state.untyped_storage().nbytes() == state.nbytes else state.clone()
    if isinstance(state, dict):
        return {name: clone_to_own_storage(value) for name, value in state.items()}
    return [clone_to_own_storage(entry) for entry in state] if isinstance(state, list) else state


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint file atomically: the digest of the content, then the content."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    write_atomically(path, hashlib.sha256(payload).digest() + payload)


def _read_verified(path: Path) -> dict[str, Any]:
    """Read a checkpoint file and verify its digest, or raise DamagedCheckpoint."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path} is missing") from error
    digest, payload = data[:32], data[32:]
    if hashlib.sha256(payload).digest() != digest:
        raise DamagedCheckpoint(f"{path} is truncated or altered ({len(data)} bytes)")
    content: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    return content
