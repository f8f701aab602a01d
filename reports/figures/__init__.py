"""Figures of a report, one kind a file."""
