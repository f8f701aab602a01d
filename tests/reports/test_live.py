"""The page of a running sweep: what has ended and is outstanding, and no verdict that can turn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.ledger import Ledger
from reports.compile import compile_live_page, mark_as_stopped
from reports.frame import load_frame
from reports.pages.html import STOPPED
from reports.store import open_client


@pytest.mark.slow
def test_a_verdict_waits_for_all_trials_of_its_study(sweep: Any, tmp_path: Path) -> None:
    trials = sweep.plan(seeds=2)
    with Ledger(sweep.ledger_path) as ledger:
        studies = {cell["trial_id"]: cell["study"] for cell in ledger.list_cells(sweep.sweep_id)}
    tuned = [trial for trial in trials if studies[trial] == "tuned"]
    sweep.finish([trial for trial in trials if studies[trial] in ("tune", "table4")] + tuned[:3])
    sweep.track()

    def compile_page(ended: int) -> tuple[str, str, Path]:
        progress = {"tune": (6, 6), "table4": (16, 16), "tuned": (ended, 4), "grid": (0, 18)}
        page = compile_live_page(sweep.uri, sweep.sweep_id, tmp_path, progress)
        text = page.read_text(encoding="utf-8")
        root = ET.fromstring(re.sub(r"(?s)<script>.*</script>|<!DOCTYPE html>", "", text))
        return text, "".join(root.itertext()), page

    text, words, page = compile_page(3)
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    assert "(ended of due): tuned 3 of 4, grid 0 of 18. Made" in " ".join(words.split())
    assert "So far: 3 of 4 trials have ended" in words
    verdicts = re.findall(r'<div data-study="(\w+)">', text)
    assert verdicts == ["table4"], "the study of components is complete"
    table = text.partition('<section id="table_tuned"')[2].partition("</section>")[0]
    assert "<b>So far" in table and table.count("<b>") == 1, "no number is bold"
    assert not re.search("<section id=.table_table4.[^§]*So far", text.partition("table_tuned")[0])
    # a page in MLflow leads to it, where `ablate ui` has both
    run = load_frame(sweep.uri, sweep.sweep_id).parents[0]
    note = open_client(sweep.uri).get_run(run.run_id).data.tags["mlflow.note.content"]
    assert f"(/reports/{page.parent.name}/report.html)" in note and "artifacts" not in note
    # MLflow lacks what the driver has counted
    assert re.findall(r'<div data-study="(\w+)">', compile_page(4)[0]) == ["table4"]
    sweep.finish(tuned[3:])
    sweep.track()
    text, words, page = compile_page(4)
    assert re.findall(r'<div data-study="(\w+)">', text) == ["tuned", "table4"]
    assert "data-seconds" in text
    mark_as_stopped(page)
    assert STOPPED in page.read_text() and 'data-seconds="' not in page.read_text()


@pytest.mark.parametrize("trials", [0, 1])
def test_a_sweep_that_has_just_begun_has_a_page(sweep: Any, tmp_path: Path, trials: int) -> None:
    sweep.finish(sweep.plan(seeds=2)[:trials])
    sweep.track()
    page = compile_live_page(sweep.uri, sweep.sweep_id, tmp_path, {"tune": (trials, 6)})
    text = page.read_text()
    assert f"tune {trials} of 6" in text and 'class="verdicts"' not in text
