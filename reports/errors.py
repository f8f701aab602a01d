"""What stops a report: a sweep that is not there, a recipe that names what does not exist."""

from __future__ import annotations


class ReportError(ValueError):
    """A report cannot be made; one line that says where, what was found and the remedy."""


class StoreUnavailable(ReportError):
    """MLflow does not answer now."""
