"""Data sets, splits, batches and augmentation."""

from trainables.data.cache import default_cache
from trainables.data.dataset import DATASETS, fingerprint
from trainables.data.splits import Splits, Subset, load_splits

__all__ = ["DATASETS", "Splits", "Subset", "default_cache", "fingerprint", "load_splits"]
