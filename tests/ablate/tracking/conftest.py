"""The made-up sweep of the reports' tests, here too."""

from tests.reports.conftest import empty_store, finished, sweep

__all__ = ["empty_store", "finished", "sweep"]
