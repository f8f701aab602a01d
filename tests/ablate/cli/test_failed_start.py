"""Ray that cannot start: one sentence, before or in place of the run, and no report of nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ablate.backends.ray import supervisor
from ablate.cli.main import main
from tests.ablate.specs import TINY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec in the working folder, and a Ray that does not start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    for name, value in (("PIDS", str(tmp_path / "pids")), ("LIVES", "unable work")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WHY", "OSError: no port is free")
    command = (sys.executable, "-P", "-m", "tests.ablate.without_ray")
    monkeypatch.setattr(supervisor, "COMMAND", command)
    (tmp_path / "spec.yaml").write_text(json.dumps(TINY), encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_failed_start_and_a_path_that_is_too_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", f"/tmp/{'x' * 60}")
    assert main(["run", "spec.yaml"]) == 2
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("RAY_TMPDIR: /tmp/xxx") and "shorter path" in line
    assert not (folder / "pids").exists() and not (folder / "runs" / "mlflow.db").exists()
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    assert main(["run", "spec.yaml"]) == 1
    said = capfd.readouterr()
    line = said.err.splitlines()[-1]  # MLflow may write others before it
    assert line.startswith("Ray does not start (OSError: no port is free; its log is ")
    assert said.err.count("Ray does not start") == 1 and "Traceback" not in said.err
    assert "report" not in said.out and "resume" not in said.out + said.err
    assert len((folder / "pids").read_text().split()) == 1, "Ray was started again"
    assert not list(folder.glob("runs/reports/*"))
