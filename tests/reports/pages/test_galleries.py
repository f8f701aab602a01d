"""Pictures of images stand on pages of their own, and the report links them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from reports.compile import Report, compile_report
from tests.reports.conftest import Sweep
from tests.reports.pages.browsing import BEYOND, WIDTHS, said, serious
from tests.reports.views_read import READ, large_gallery, leave

APART = ("gallery", "embedding_map", "grad_cam", "uncertainty")
KINDS = (*APART, "spectrum", "affinity")
PAGES = {kind: f"{kind}_tuned_{'train' if kind == 'grad_cam' else 'test'}.html" for kind in APART}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Report:
    """The best model of two."""
    folder = tmp_path_factory.mktemp("galleries")
    shutil.copy(empty_store, folder / "mlflow.db")
    sweep = Sweep(folder)
    figures = [{"kind": kind, "studies": ["tuned"]} for kind in KINDS]
    figures[0]["options"] = {"queries": 4, "failures": 4, "nearest": 16}
    sweep.finish(sweep.plan(seeds=2, report={"figures": figures}, studies=("tuned",)))
    sweep.track()
    kinds = READ | {"gallery": large_gallery()}
    leave(sweep.uri, sweep.sweep_id, folder / "trials", kinds)
    return compile_report(sweep.uri, sweep.sweep_id, folder / "reports")


@pytest.mark.slow
def test_the_report_stays_small_and_names_the_pages(made: Report) -> None:
    text, page = made.html.read_text(), made.paths[PAGES["gallery"]]
    assert page.stat().st_size > 1_000_000 and made.html.stat().st_size < 300_000
    linked = set(re.findall(r'class="page" href="([^"]+)"', text))
    assert linked == {*PAGES.values()} and linked <= {path.name for path in made.paths.values()}
    told = (made.html.parent / "report.md").read_text()
    assert all(f".png)]({name})" in told for name in linked)
    assert "](spectrum_tuned_test.html)" not in told


@pytest.mark.parametrize("kind", APART)
def test_each_page_is_well_formed_and_leads_back(made: Report, kind: str) -> None:
    text = made.paths[PAGES[kind]].read_text()
    script = re.compile(r"<script>.*?</script>", re.DOTALL)
    root = ET.fromstring(script.sub("", text.replace("<!DOCTYPE html>", "")))
    sources = [each.get("src", "") for each in root.iter("img")]
    assert sources and all(source.startswith("data:image/") for source in sources)
    hrefs = {each.get("href", "") for each in root.iter("a")}
    (back,) = hrefs
    assert back == f"report.html#{made.paths[PAGES[kind]].stem}"
    assert f'id="{back.partition("#")[2]}"' in made.html.read_text()
    run = made.frame.trials["run_id"]
    assert any(each in "".join(root.itertext()) for each in run)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_runs_off_a_page(open_page: Any, made: Report, width: int, scheme: str) -> None:
    for name in ("report.html", *PAGES.values()):
        page = open_page((made.html.parent / name).as_uri(), width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(BEYOND) == [], name
        assert said(page) == [], name
        if width == WIDTHS[0] and name in (PAGES["gallery"], PAGES["uncertainty"]):
            assert serious(page) == [], name
