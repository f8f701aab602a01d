"""A report made again in its folder leaves no file of a larger one that stood there, and no one
else's is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reports.compile import MANIFEST, compile_report, remove_stale_files
from reports.pages import figures
from reports.recipe import Recipe


def test_files_of_a_larger_report_go_and_those_of_others_stay(
    finished: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(figures, "LARGEST", 1)  # each figure on a page of its own
    report = compile_report(finished.uri, finished.sweep_id, tmp_path, log_to_parent=False)
    folder = report.html.parent
    page = next(name for name in report.paths if name.startswith("heatmap") and "html" in name)
    former = {f"{Path(page).stem}.{kind}" for kind in ("html", "png", "svg")}
    assert former <= {*report.paths}
    (folder / "heatmap_of_others.png").write_bytes(b"png")
    smaller = report.frame.recipe.model_copy(update={"heatmaps": [], "curves": []})
    monkeypatch.setattr(Recipe, "restrict_to_studies", lambda *_: smaller)
    again = compile_report(finished.uri, finished.sweep_id, tmp_path, log_to_parent=False)
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {*again.paths, "heatmap_of_others.png"} and not former & names


def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    other = tmp_path / "other.txt"
    other.write_text("x")
    (folder / MANIFEST).write_text(json.dumps(["../other.txt"]))
    remove_stale_files(folder, [])
    assert other.is_file()
