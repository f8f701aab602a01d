"""Layers, dotted paths, canonical JSON, error messages, terminal output and child processes."""
