"""Data sets, splits, batches and augmentation."""
