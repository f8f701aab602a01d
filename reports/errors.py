"""Errors that stop a report."""


class ReportError(ValueError):
    """A report cannot be made; the message is one sentence with the remedy."""


class StoreUnavailable(ReportError):
    """MLflow does not answer."""
