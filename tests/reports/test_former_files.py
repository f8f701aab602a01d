"""A report made again in its folder leaves no file of a larger one that stood there, and no one
else's is touched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from reports.compile import compile_report
from reports.pages import figures
from reports.pages.folder import MANIFEST, remove_stale_files


def test_files_of_a_larger_report_go_and_those_of_others_stay(
    finished: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(figures, "LARGEST", 1)  # each figure on a page of its own
    made = compile_report(finished.uri, finished.sweep_id, tmp_path, log_to_parent=False)
    folder = made.html.parent
    page = next(name for name in made.paths if name.startswith("heatmap") and "html" in name)
    gone = {f"{Path(page).stem}.{kind}" for kind in ("html", "png", "svg")}
    assert gone <= {*made.paths}
    edited = next(name for name in made.paths if name.startswith("curves") and "html" in name)
    (folder / edited).write_text("notes of mine")
    (folder / "heatmap_of_mine.png").write_bytes(b"mine")
    monkeypatch.setattr(
        type(made.frame.recipe),
        "restrict_to_studies",
        _smaller(type(made.frame.recipe).restrict_to_studies),
    )
    again = compile_report(finished.uri, finished.sweep_id, tmp_path, log_to_parent=False)
    left = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert left == {*again.paths, edited, "heatmap_of_mine.png"}
    assert not gone & left
    assert (folder / edited).read_text() == "notes of mine"


def _smaller(begun: Any) -> Any:
    """The recipe without its heatmaps and curves."""

    def fewer(recipe: Any, studies: set[str]) -> Any:
        return begun(recipe, studies).model_copy(update={"heatmaps": [], "curves": []})

    return fewer


def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    other = tmp_path / "other.txt"
    other.write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    (folder / MANIFEST).write_text(json.dumps({"../other.txt": digest}))
    remove_stale_files(folder, [])
    assert other.is_file()
