"""Layers, dotted paths, canonical JSON, checks for secrets, error messages and terminal output."""
