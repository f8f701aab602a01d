"""A user's own `reports.py` or `trainables.py` is named in one sentence; a harmless folder is not.

Each case runs from a checkout that PYTHONPATH names, and as `pip install -e` has it: there Python
asks for the packages after it has searched all folders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.backends.ray.session import check_folders
from trainables.words.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
EDITABLE = f"""
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("ablate", "trainables", "reports"):
            return spec_from_file_location(name, f"{ROOT}/{{name}}/__init__.py")

sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Finder)
"""
USES = """
import ablate
from ablate.cli.main import main
import reports.tables.comparison, trainables.words.secrets, trainables.words.secrets
trainables.load
print("imported")
"""
COMMAND = "from ablate.cli.main import main\nmain(['--help'])"  # as pip writes `bin/ablate`


@pytest.fixture(params=["checkout", "editable"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    path = str(ROOT)
    if request.param == "editable":
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(EDITABLE)
        path = str(tmp_path / "site")
    return {**os.environ, "PYTHONPATH": path}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ablate").write_text(COMMAND)
    (made / "script.py").write_text(USES)
    return made


def run(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("environment", "words"),
    [("checkout", ("-m", "ablate.run", "--help")), ("editable", ("script.py",))],
    indirect=["environment"],
)
@pytest.mark.parametrize("name", ["reports.py", "reports/__init__.py", "trainables.py"])
def test_a_file_that_hides_a_package_is_named(
    folder: Path, environment: dict[str, str], name: str, words: tuple[str, ...]
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("raise SystemExit('the user’s file was run')")
    done = run(folder, environment, *words)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert str(folder / name) in line and "Rename it" in line


@pytest.mark.parametrize("environment", ["editable"], indirect=True)
def test_the_command_does_not_search_the_working_folder(
    folder: Path, environment: dict[str, str]
) -> None:
    for name in ("reports.py", "trainables.py"):
        (folder / name).write_text("raise SystemExit('the user’s file was run')")
    assert run(folder, environment, "../bin/ablate").returncode == 0


@pytest.mark.parametrize("environment", ["checkout"], indirect=True)
def test_other_errors_have_their_traceback(folder: Path, environment: dict[str, str]) -> None:
    (folder / "reports.py").touch()
    text = "try:\n    import ablate\nexcept ImportError:\n    1 / 0"
    done = run(folder, environment, "-c", text)
    assert "ZeroDivisionError" in done.stderr and "Traceback" in done.stderr


@pytest.mark.parametrize(
    "names",
    [
        ("reports/a-1/report.html", "reports/tables/mine.py", "reports/uri/x"),
        ("trainables/jobs/x", "trainables/data.csv"),
        ("search_spaces/__init__.py", "search_spaces/ddml.yaml"),
        ("search_spaces.py",),
    ],
)
def test_harmless_names_stay_harmless(
    folder: Path, environment: dict[str, str], names: tuple[str, ...]
) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    done = run(folder, environment, "script.py")
    assert done.stdout == "imported\n", done.stderr
    if "reports" in names[0]:  # as after a sweep into this folder
        assert run(folder, environment, "-m", "ablate.run", "--help").returncode == 0


@pytest.mark.parametrize("name", ["trainables.py", "trainables/__init__.py"])
def test_what_rays_workers_would_import_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also with the command `ablate`: Ray lets its workers search the working folder first."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    monkeypatch.chdir(folder)
    for address in (None, "127.0.0.1:6379"):
        with pytest.raises(ConfigError, match="Rename it") as refused:
            check_folders(address)
        assert refused.value.path == str(folder / name)
    for harmless in (folder.parent, ROOT):
        monkeypatch.chdir(harmless)
        check_folders(None)
