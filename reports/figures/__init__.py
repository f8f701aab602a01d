"""Figures of a report, one kind per file."""
