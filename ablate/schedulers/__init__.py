"""Schedulers that end cells early, one per file, and races over seeds."""
