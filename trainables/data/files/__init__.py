"""Data sets that are lists of image files: where they lie, their rows, hashes and pixels."""
