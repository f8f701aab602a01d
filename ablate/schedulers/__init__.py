"""Schedulers that end cells early."""
