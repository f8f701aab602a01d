"""One browser for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import needed
from tests.reports.pages import wide


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = needed("chromium", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of tables that are hard to fit."""
    return wide.page(tmp_path_factory.mktemp("page")).as_uri()
