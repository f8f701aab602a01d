"""A page in a browser, with what it says and asks for on the way."""

from __future__ import annotations

from typing import Any


def opened(browser: Any, address: str, width: int, scheme: str = "light") -> Any:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.said = []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.said.append(f"asked for {request.url[:80]}"))
    page.goto(address)
    return page
