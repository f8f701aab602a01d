"""A page in a browser, with what it says and asks for on the way."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

WIDTHS = (390, 820, 1440)
# What reaches beyond the window though it is in nothing that scrolls by itself.
BEYOND = """() => Array.from(document.querySelectorAll("body *")).filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && !e.parentElement.closest(".scroll, pre")
        && box.right > document.documentElement.clientWidth + 1;
}).map(e => e.outerHTML.slice(0, 120))"""
SERIOUS = ("serious", "critical")
AXE = files("axe_playwright_python").joinpath("axe.min.js")
FOUND = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .map(each => [each.impact, each.id, each.nodes.map(n => n.html.slice(0, 160)).slice(0, 4)])"""


def violations(page: Any) -> list[Any]:
    """What axe finds, all that is folded being open."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return list(page.evaluate(FOUND))


def serious(page: Any) -> list[Any]:
    """What of it keeps readers out."""
    return [each for each in violations(page) if each[0] in SERIOUS]


def said(page: Any) -> list[str]:
    """What the page said, and what it asked for beside files and data."""
    own = ("asked for file:", "asked for data:")
    return [line for line in page.console_texts if not line.startswith(own)]
