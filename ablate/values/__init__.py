"""Layers of values, dotted paths, canonical JSON, secrets, errors, the terminal."""
