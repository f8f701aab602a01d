"""Figures in a browser: values by pointer and arrow keys, enlarged by a click, closed by Esc."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reports.pages.browsing import said

PICTURE = ".figures figure"
TOLD = f"{PICTURE} .tip:not([hidden])"
LARGE = "dialog .tip:not([hidden])"


def spots(page: Any) -> list[tuple[int, int, str]]:
    """As the page has them, from left to right."""
    found = json.loads(page.locator(f"{PICTURE} img").first.get_attribute("data-spots"))
    return sorted(found, key=lambda spot: (spot[0], spot[1]))


@pytest.mark.parametrize("width", [390, 1440])
def test_the_mark_below_the_pointer_tells_its_values(
    open_page: Any, address: str, width: int
) -> None:
    page = open_page(address, width)
    picture = page.locator(f"{PICTURE} img").first
    picture.scroll_into_view_if_needed()
    box, known = picture.bounding_box(), spots(page)
    pad = picture.evaluate("e => parseFloat(getComputedStyle(e).paddingLeft) + 1")
    x, y, words = known[0]
    page.mouse.move(
        box["x"] + pad + (box["width"] - 2 * pad) * x / 1000,
        box["y"] + pad + (box["height"] - 2 * pad) * y / 1000,
    )
    assert page.locator(TOLD).all_inner_texts() == [words]
    tip = page.locator(TOLD).bounding_box()
    assert tip["x"] >= 0 and tip["x"] + tip["width"] <= width
    page.mouse.move(1, 1)
    assert page.locator(TOLD).count() == 0


@pytest.mark.parametrize("width", [390, 1440])
def test_enter_enlarges_and_esc_closes(open_page: Any, address: str, width: int) -> None:
    page = open_page(address, width)
    button = page.locator(f"{PICTURE} button").first
    small = button.locator("img").bounding_box()["width"]
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    assert dialog.locator("img").bounding_box()["width"] > small
    box = dialog.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.keyboard.press("ArrowRight")
    assert page.locator(LARGE).all_inner_texts() == [spots(page)[0][2]]
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert button.evaluate("e => e === document.activeElement")
    button.locator("img").click()
    page.locator("dialog .close").click()
    page.locator("dialog").wait_for(state="detached")
    assert said(page) == []
