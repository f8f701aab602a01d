"""Data sets, splits, batches and augmentation."""

from trainables.data.dataset import DATASETS, fingerprint
from trainables.data.splits import Splits, Subset, load_splits

__all__ = ["DATASETS", "Splits", "Subset", "fingerprint", "load_splits"]
