"""What a reader does with the page, from a file: pin, hide, export, filter, go to runs, reload."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.pages import html
from tests.reports.pages.browsing import said

pytestmark = pytest.mark.slow
NAMES = ["NormSoftmax", "[bracketed] first & <last> 100 %_of_#1"]


def exported(page: Any, part: str, kind: str) -> str:
    with page.expect_download() as started:
        page.locator(f"{part} .tools").first.get_by_text(kind, exact=True).click()
    return Path(started.value.path()).read_bytes().decode("utf-8")


def rows(page: Any) -> list[list[str]]:
    found = page.locator("#table_rows table").first.locator("tbody tr").all()
    return [row.locator("td:visible").all_inner_texts() for row in found]


def test_a_pinned_row_stands_first_and_others_have_their_distance(
    open_page: Callable[..., Any], address: str
) -> None:
    page = open_page(address, 1440)
    page.locator("#table_rows select").first.select_option(NAMES[1])
    for _ in range(2):
        assert rows(page)[0][:2] == [NAMES[1], "60.20 ± 0.20"]
        page.locator("#table_rows table").first.locator("th button").nth(1).click()
    assert [NAMES[0], "54.20 ± 0.20 (−6.00)"] in [row[:2] for row in rows(page)]
    table = list(csv.reader(exported(page, "#table_rows", "CSV").splitlines()))
    assert table[1][:3] == [NAMES[1], "60.20 ± 0.20", "'+6.00 [+6.00, +6.00]"]
    latex = exported(page, "#table_rows", "LaTeX")
    assert r"{}[bracketed] first \& $<$last$>$ 100 \%\_of\_\#1 & 60.20 $\pm$ 0.20" in latex
    assert "{}*starred*" in latex and latex.count(r"\\") == 6
    page.locator("#table_rows select").first.select_option("")
    assert page.locator(".gap, .pinned").count() == 0
    # columns in which all rows are equal
    assert "n" in table[0]
    page.get_by_role("button", name="Hide equal columns").first.click()
    hidden = list(csv.reader(exported(page, "#table_rows", "CSV").splitlines()))
    assert "n" not in hidden[0] and len(hidden[0]) == len(table[0]) - 1
    assert said(page) == ["asked for blob:null" + line[19:] for line in said(page)]


def test_one_study_alone_and_a_square_s_runs(
    open_page: Callable[..., Any], address: str, tmp_path: Path
) -> None:
    text = Path(address.removeprefix("file://")).read_text("utf-8")
    text = text.replace('id="table_again" data-study="s"', 'id="table_again" data-study="t"')
    (tmp_path / "two.html").write_text(text, "utf-8")
    page = open_page((tmp_path / "two.html").as_uri(), 1440)
    page.locator("nav select").select_option("t")
    assert (
        not page.locator("#table_rows").is_visible() and page.locator("#table_again").is_visible()
    )
    picture = page.locator(".figures figure", has_text="2 × 3 settings").locator("img")
    x, y, _, anchor = json.loads(picture.get_attribute("data-spots"))[0]
    page.evaluate(f"document.querySelector('table.runs tr').id = {json.dumps(anchor)}")
    box = picture.bounding_box()
    picture.click(
        position={"x": box["width"] * x / 1000 + 20, "y": box["height"] * y / 1000}
    )  # once the picture no longer moves
    page.locator("tr:target").wait_for(state="visible")  # of another study than the chosen one
    assert page.url.endswith(f"#{anchor}") and page.locator("dialog").count() == 0
    picture.click(position={"x": 12, "y": 12})
    assert page.locator("dialog[open]").count() == 1


def test_a_running_sweep_s_page_reloads_as_it_was(
    open_page: Callable[..., Any], address: str, tmp_path: Path
) -> None:
    text = Path(address.removeprefix("file://")).read_text("utf-8")
    live, path = html.LIVE.replace('"60"', '"9"'), tmp_path / "live.html"
    path.write_text(re.sub(r"</header>", f"{live}</p></header>", text, count=1), "utf-8")
    page = open_page(path.as_uri(), 820)
    page.locator("#table_rows select").first.select_option(NAMES[1])
    page.locator("#table_rows details summary").click()
    page.evaluate("window.before = true")
    page.wait_for_function("window.before === undefined", timeout=60_000)
    page.get_by_label("Do not reload").check(timeout=60_000)
    page.locator("#table_rows details[open]").wait_for(state="attached")
    assert rows(page)[0][0] == NAMES[1]
    page.evaluate("window.before = true")
    page.wait_for_timeout(12_000)
    assert page.evaluate("window.before") is True
    path.write_text(path.read_text("utf-8").replace(live, html.STOPPED), "utf-8")
    page.reload()
    assert page.get_by_label("Do not reload").count() == 0 and "stopped" in page.inner_text("#live")
