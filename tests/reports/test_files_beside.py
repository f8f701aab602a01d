"""A report beside its trials leads to their files, and to nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reports.compile import compile_report
from reports.frame import load_frame


def test_each_link_is_a_file_and_mlflow_s_page_has_none(sweep: Any, tmp_path: Path) -> None:
    sweep.finish(sweep.plan(seeds=1)[:4])
    sweep.track()
    trials = load_frame(sweep.uri, sweep.sweep_id).trials["trial_id"].tolist()
    for name in ("trial.log", "config.json", "best.safetensors"):
        for trial in trials[:2]:
            path = tmp_path / "trials" / trial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
    (tmp_path / "trials" / trials[1] / "best.safetensors").unlink()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path / "reports")
    page = report.html.read_text()
    links = re.findall(r'href="(\.\./[^"]+)">(\w+)<', page)
    assert sorted({text for _, text in links}) == ["configuration", "log", "weights"]
    assert all((report.html.parent / href).is_file() for href, _ in links)
    of = {trial: {text for href, text in links if f"/{trial}/" in href} for trial in trials}
    assert of[trials[0]] == {"log", "configuration", "weights"}
    assert of[trials[1]] == {"log", "configuration"} and not of[trials[2]]
    frame = report.frame
    folder = frame._client.download_artifacts(frame.parents[0].run_id, "report", str(tmp_path))
    assert 'href="../' not in (Path(folder) / "report.html").read_text()
