"""Layers, dotted paths, canonical JSON, error messages and terminal output."""
