"""The page in a browser: nothing runs off at any width or on paper, and what is folded opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reports.pages.browsing import BEYOND, WIDTHS, said, serious, violations

A4 = 718  # CSS pixels between margins of 10 mm
SPILLED = """() => Array.from(document.querySelectorAll(".scroll")).filter(
    e => e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute("aria-label"))"""


@pytest.mark.parametrize(
    ("width", "scheme"), [*zip(WIDTHS, ("dark", "light", "dark"), strict=True)]
)
def test_nothing_runs_off(open_page: Any, address: str, width: int, scheme: str) -> None:
    page = open_page(address, width, scheme)
    wide_as = "document.documentElement.scrollWidth"
    for _ in range(2):  # as it opens, then with all that is folded unfolded
        assert page.evaluate(wide_as) <= width
        assert page.evaluate(BEYOND) == []
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert said(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_whoever_cannot_see_it_reads_it_too(
    open_page: Any, address: str, width: int, scheme: str
) -> None:
    page = open_page(address, width, scheme)
    page.locator("#table_rows select").first.select_option(index=3)
    assert violations(page) == []


def test_the_measures_find_what_is_wrong(open_page: Any, address: str) -> None:
    """So that the tests above cannot pass by looking at nothing."""
    page = open_page(address, 390)
    page.evaluate("document.querySelector('.question h2').style.width = '600px'")
    assert any("beat" in found for found in page.evaluate(BEYOND))
    page.evaluate("document.querySelector('.question h2').style = 'color: #ddd'")
    page.evaluate("document.querySelector('img').removeAttribute('alt')")
    assert {each[1] for each in serious(page)} == {"color-contrast", "image-alt"}


def test_paper_has_every_column(open_page: Any, address: str, tmp_path: Path) -> None:
    page = open_page(address, A4)
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details.more:not([open])').length") == 0
    assert page.evaluate("document.querySelectorAll('details.more').length") == 3
    assert page.evaluate(BEYOND) == []
    assert page.evaluate(SPILLED) == []
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_screen_has_the_verdict(open_page: Any, address: str, width: int) -> None:
    page = open_page(address, width)
    for place in (".question h2", ".verdicts li"):
        box = page.locator(place).first.bounding_box()
        assert box["y"] + box["height"] < 900
    assert page.locator(".verdicts li").count() == 8
    picture = page.locator("#verdict figure img").bounding_box()
    assert picture["width"] <= width and (width < 1440 or picture["y"] < 600)


def test_further_metrics_open_on_a_click_and_columns_sort(open_page: Any, address: str) -> None:
    page = open_page(address, 1440)
    more = page.locator("#table_rows details.more")
    assert not more.locator("table").is_visible()
    more.locator("summary").click()
    assert more.locator("table").is_visible()
    table = page.locator("#table_rows table").first

    def column() -> list[float]:
        texts = table.locator("tbody tr td:nth-child(2)").all_inner_texts()
        return [float(text.split(" ")[0]) for text in texts]

    head = table.locator("th").nth(1)
    found = column()
    head.locator("button").click()
    assert column() == sorted(found) != found and head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert column() == sorted(found, reverse=True)


def test_a_click_on_a_number_shows_its_runs_with_that_metric(open_page: Any, address: str) -> None:
    page = open_page(address, 1440)
    more = page.locator("#table_rows details.more")
    more.locator("summary").click()
    heads = [text.strip() for text in more.locator("th").all_inner_texts()]
    column = heads.index("NMI, validation (%)")
    row = more.locator("tbody tr").nth(2)
    name, field = row.locator("td").nth(0).inner_text(), row.locator("td").nth(column)
    mean = float(field.inner_text().split(" ± ")[0])
    field.locator("a").click()
    target = page.locator("tr:target")
    target.wait_for(state="visible")
    runs = target.locator("xpath=ancestor::table")
    at = [text.strip() for text in runs.locator("th").all_inner_texts()].index(heads[column])
    rows = [each.locator("td").all_inner_texts() for each in runs.locator("tbody tr").all()]
    values = [float(texts[at]) for texts in rows if texts[0] == f"variant={name}"]
    assert len(values) == 3 and sum(values) / 3 == pytest.approx(mean, abs=0.01)


@pytest.mark.parametrize("width", [390, 1440])
def test_figures_enlarge_tell_values_and_close(open_page: Any, address: str, width: int) -> None:
    page = open_page(address, width)
    button = page.locator(".figures figure button").first
    marks = json.loads(button.locator("img").get_attribute("data-spots"))
    small = button.locator("img").bounding_box()["width"]
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    assert dialog.locator("img").bounding_box()["width"] > small
    box = dialog.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.keyboard.press("ArrowRight")
    assert page.locator("dialog .tip:not([hidden])").all_inner_texts() == [min(marks)[2]]
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert button.evaluate("e => e === document.activeElement")
    assert said(page) == []
