"""Trials of one shape, trained side by side as one program."""
