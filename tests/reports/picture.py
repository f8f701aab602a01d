"""Take the first page's picture of a report.

    python -m tests.reports.picture runs/reports/ddml-…/report.html docs/pictures/report.png

It shows the top of the page as it opens, in 128 colours, so that it has at most 150 KB.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE = {"width": 1180, "height": 860}
LARGEST = 150_000  # bytes


def take_picture(report: Path, to: Path) -> None:
    """Write a picture of the report's top; a ValueError if it is too large for the first page."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SIZE)
        page.goto(report.resolve().as_uri())
        page.wait_for_load_state()
        raw = page.screenshot()
        browser.close()
    reduced = Image.open(io.BytesIO(raw)).convert("RGB").quantize(128)
    reduced.save(to, optimize=True)
    if to.stat().st_size > LARGEST:
        raise ValueError(f"{to} has {to.stat().st_size} bytes, more than {LARGEST}")


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]), Path(sys.argv[2]))
