"""Layers of values, dotted paths, canonical JSON, seeds, the wording of errors."""
