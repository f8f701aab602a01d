"""One browser for the tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address at a width, in a colour scheme; the page notes what it says and asks for."""
    pages = []

    def open_at(address: str, width: int, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        page.console_texts = []
        page.on("console", lambda message: page.console_texts.append(message.text))
        page.on("pageerror", lambda error: page.console_texts.append(str(error)))
        page.on(
            "request", lambda request: page.console_texts.append(f"asked for {request.url[:80]}")
        )
        page.goto(address)
        return page

    yield open_at
    for page in pages:
        page.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of tables that are hard to fit."""
    return wide.page(tmp_path_factory.mktemp("page")).as_uri()
