"""A report is read by whoever cannot see it, too: axe-core finds nothing serious in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.pages import wide
from tests.reports.pages.browsing import opened, serious


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return wide.page(tmp_path_factory.mktemp("page")).as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_serious_is_found(browser: Any, address: str, width: int, scheme: str) -> None:
    page = opened(browser, address, width, scheme)
    assert serious(page) == []
    page.close()


def test_what_is_serious_would_be_found(browser: Any, address: str) -> None:
    page = opened(browser, address, 1440)
    page.evaluate("document.querySelector('.headline').style.color = '#ddd'")
    page.evaluate("document.querySelector('img').removeAttribute('alt')")
    assert {each[1] for each in serious(page)} == {"color-contrast", "image-alt"}
    page.close()
