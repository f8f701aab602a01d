"""Each `pip install` that code, documents and ready files name fetches what they mean.

On PyPI `ablate` is another project: a hint such as `pip install 'ablate[wandb]'` could replace this
one. So hints name the libraries themselves, as `pyproject.toml` has them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from ablate.cli.upkeep import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ablate", "trainables", "reports", "search_spaces", ".ci")
ENDINGS = {".py", ".md", ".yaml", ".yml", ".sh", ".j2", ".toml", ".txt", ".ipynb", ""}
INSTALL = re.compile(r"\bpip(?:3|['\"])? install\b([^`\n]*)")
VALUED = ("-c", "-e", "-r", "-w")  # options with a value
TOOLS = {"pip", "google-api-python-client"}  # pip itself, and what Ray's autoscaler needs on GCP


def iterate_files() -> Iterator[Path]:
    """Yield all texts that users read or run."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile"))
    for folder in FOLDERS:
        yield from (
            path
            for path in sorted((ROOT / folder).rglob("*"))
            if path.is_file() and path.suffix in ENDINGS and "__pycache__" not in path.parts
        )


@cache
def load_requirements() -> dict[str, str]:
    """Map the name of each library in `pyproject.toml` to its version there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    listed = [Requirement(text) for texts in (project["dependencies"], *extras) for text in texts]
    return {each.name: str(each.specifier) for each in listed}


def list_hints(text: str) -> list[list[str]]:
    """Return the words after each `pip install`, up to the end of the command."""
    hints = []
    for rest in INSTALL.findall(text):
        words: list[str] = []
        for word in rest.replace("\\", " ").split():
            if word in ("#", "&&", "||", ";"):
                break
            words.append(word.strip("'\"").rstrip(",.;:)'\"") or word.strip("'\""))
            if word[-1] in ",;:)" or (word[-1] == "." and len(word) > 1):
                break  # a clause or sentence ends here
        hints.append(words)
    return hints


def find_faults(text: str) -> list[str]:
    """Return what is wrong with the text's hints."""
    known = load_requirements()
    faults = (
        ["the distribution's name stands in a hint"]
        if re.search(r"\bablate(-dml)?\[", text)
        else []
    )
    for words in list_hints(text):
        wanted = [
            word
            for before, word in zip(["", *words], words, strict=False)
            if not word.startswith("-") and before not in VALUED
        ]
        faults += [f"{words}: names nothing"] if not wanted and "-e" not in words else []
        for word in wanted:
            if word.startswith(".") or "/" in word or word == "{name}":  # a folder, or a variable
                continue
            try:
                requirement = Requirement(word)
            except InvalidRequirement:
                faults.append(f"{word!r} is no requirement")
                continue
            name, version = requirement.name, str(requirement.specifier)
            if name not in known and name not in TOOLS:
                faults.append(f"{name!r} is no library of pyproject.toml")
            elif name in known and version not in ("", known[name]):
                faults.append(f"{word!r} differs from {name}{known[name]} in pyproject.toml")
    return faults


def test_all_hints_name_libraries_of_this_project() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in iterate_files()}
    assert sum(len(list_hints(text)) for text in texts.values()) >= 10, "hints are not found"
    faults = [
        f"{path.relative_to(ROOT)}: {fault}" for path in texts for fault in find_faults(texts[path])
    ]
    assert not faults, "\n".join(faults)


def test_the_doctor_names_libraries_of_this_project() -> None:
    assert set(PACKAGES) <= set(load_requirements())


def test_wrong_hints_are_found() -> None:
    right = (
        "Run `pip install 'wandb>=0.31'`, or python -m pip install --quiet -c c.txt '.[cluster]'"
    )
    assert find_faults(right) == []
    for wrong in (
        "pip install 'ablate[wandb]'",
        "Run pip install ablate.",
        "pip install ablate-dml",
        "pip install 'wandb>=0.1'",
        "pip3 install metric-learning",
        "python -m pip install --quiet $HOME/ablate[cluster]",
        "pip install -U",
    ):
        assert find_faults(wrong), wrong


def test_the_distribution_has_a_name_of_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "ablate-dml" and project["scripts"].keys() == {"ablate"}
