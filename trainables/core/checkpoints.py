"""A trial's state on disk: atomic, checked, refused if it is another trial's.

A file is the SHA-256 of its content and then the content, a `torch.save` of tensors, numbers
and strings, read with `weights_only=True`. Kept are the two newest states and the best weights
they name. The best weights change seldom and lie in a file of their own, written first.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import torch

from trainables.errors import ConfigError
from trainables.machine.files import write_atomically

LOG = logging.getLogger(__name__)
KEPT = 2
FORMAT = 1
STATE = re.compile(r"steps-\d{10}-best-\d{6}\.pt")


class DamagedCheckpoint(Exception):
    """A file that is truncated, altered or gone."""


class Checkpoints:
    """The folder of one trial; a state of another configuration or seed is refused."""

    def __init__(self, folder: Path, config_hash: str, seed: int) -> None:
        self.folder = folder
        self.identity = {"format": FORMAT, "config_hash": config_hash, "seed": seed}

    def save_state(self, steps: int, state: dict[str, Any], best: dict[str, Any] | None) -> None:
        """Write the state after `steps` optimiser steps, then drop what is no longer kept.

        Args:
            best: {"epoch": int, "value": float, "weights": state dict}, or None before any.
        """
        best_epoch = 0 if best is None else int(best["epoch"])
        if best is not None and not self._locate_best(best_epoch).exists():
            self._write_atomically(self._locate_best(best_epoch), best)
        content = {**self.identity, "best": best_epoch, "state": state}
        self._write_atomically(
            self.folder / f"steps-{steps:010d}-best-{best_epoch:06d}.pt", content
        )
        self._prune_old()

    def load_latest(self) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
        """Return (state, best) of the newest whole checkpoint, or None if there is none."""
        for path in reversed(self._list_states()):
            try:
                content = _read_verified(path)
                stored = {key: content.get(key) for key in self.identity}
                if stored != self.identity:
                    raise ConfigError(
                        str(path),
                        f"a checkpoint of {stored}, not of {self.identity}: take another output "
                        "folder, or remove this one",
                    )
                best = (
                    _read_verified(self._locate_best(content["best"])) if content["best"] else None
                )
            except DamagedCheckpoint as damage:
                LOG.warning("%s; falling back to the checkpoint before", damage)
                continue
            return content["state"], best
        return None

    def _list_states(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("steps-*.pt") if STATE.fullmatch(path.name))

    def _locate_best(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch:06d}.pt"

    def _write_atomically(self, path: Path, content: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        payload = buffer.getvalue()
        write_atomically(path, hashlib.sha256(payload).digest() + payload)

    def _prune_old(self) -> None:
        states = self._list_states()
        named = {f"best-{path.stem.rpartition('-')[2]}.pt" for path in states[-KEPT:]}
        unnamed = [path for path in self.folder.glob("best-*.pt") if path.name not in named]
        for path in (*states[:-KEPT], *unnamed):
            path.unlink(missing_ok=True)


def clone_to_own_storage(state: Any) -> Any:
    """Return the same state, each tensor with a storage of its own: `torch.save` writes whole
    storages."""
    if isinstance(state, torch.Tensor):
        return state if state.untyped_storage().nbytes() == state.nbytes else state.clone()
    if isinstance(state, dict):
        return {name: clone_to_own_storage(value) for name, value in state.items()}
    return [clone_to_own_storage(entry) for entry in state] if isinstance(state, list) else state


def _read_verified(path: Path) -> dict[str, Any]:
    """Return what `_write_atomically` wrote, or raise DamagedCheckpoint."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path} is gone") from error
    digest, payload = data[:32], data[32:]
    if hashlib.sha256(payload).digest() != digest:
        raise DamagedCheckpoint(f"{path} is truncated or altered ({len(data)} bytes)")
    content: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    return content
