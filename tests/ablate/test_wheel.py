"""ablate without a checkout: its wheel in an empty folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
import yaml

from ablate.ledger.queries import count_statuses
from ablate.ledger.records import Records
from ablate.spec.recipes import list_recipes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]
LARGEST = 20_000_000  # bytes of the wheel, nearly all of them images


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has ablate from its wheel, and this one's libraries."""
    folder = tmp_path_factory.mktemp("wheel")
    source, environment = folder / "source", folder / "environment"
    source.mkdir()
    for name in ("ablate", "trainables", "reports", "search_spaces"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < LARGEST
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"])
    return environment / "bin" / "ablate"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def start(command: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["ABLATE_CACHE"] = str(command.parents[2] / "cache")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([command, *words], cwd=folder, env=environment, text=True, **pipes)


def said(command: Path, folder: Path, *words: str) -> str:
    process = start(command, folder, *words)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return text


def test_recipes_run_and_can_be_copied(command: Path, folder: Path) -> None:
    listed = said(command, folder, "new", "--help").partition("Recipes: ")[2]
    assert " ".join(listed.split()).rstrip(".").split(", ") == list_recipes()
    said(command, folder, "new", "mine", "--from", "comparisons/few_images_4")
    said(command, folder, "new", "first")
    plan = said(command, folder, "plan", "mine.yaml")
    assert yaml.safe_load((folder / "mine.yaml").read_text())["name"] == "mine"
    assert "sweep mine" in plan and "sweep first" in said(command, folder, "plan", "first.yaml")
    quick = ("--study", "tune_proxy_anchor", "--set", "training.epochs=1")
    quick += ("--set", "data.image_size=32")
    text = said(command, folder, "run", "ddml", *quick)
    assert "8 trials were trained" in text
    (report,) = folder.glob("runs/reports/*/report.html")
    assert "Figure" in report.read_text() or report.stat().st_size > 10_000


def test_the_demo_trains_and_goes_on(command: Path, folder: Path) -> None:
    process = start(command, folder, "demo")
    ledger, end = folder / "runs" / "ledger.sqlite", time.monotonic() + 1200
    while time.monotonic() < end and process.poll() is None:
        time.sleep(2)
        if ledger.is_file():
            with Records(ledger) as records:
                if any(row["status"] == "done" for row in count_statuses(records)):
                    process.send_signal(signal.SIGINT)
                    break
    text, _ = process.communicate()
    assert process.returncode == 130 and text.rstrip().endswith("ablate demo"), text
