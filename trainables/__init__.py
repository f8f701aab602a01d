"""Train and load single trials. Nothing here knows sweeps, and only one file imports Ray.

    model = trainables.load("runs/trials/<trial_id>/best.safetensors")
    embeddings = model.embed(images)

Importing this package imports no torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainables.core.trained_model import Model

__all__ = ["load"]


def load(path: str | Path, device: str = "auto") -> "Model":
    """Load a trained model from its export; see `trainables.core.trained_model.load_model`."""
    from trainables.core import trained_model

    return trained_model.load_model(path, device)
