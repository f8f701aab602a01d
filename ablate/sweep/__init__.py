"""Decide which cells a sweep has, given its results so far, and which job runs next."""
