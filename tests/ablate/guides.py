"""The files that a guide shows, laid out and installed as its reader would."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "search_spaces" / "guides"
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w.]+)\n")


def files(page: Path) -> dict[str, str]:
    """The blocks whose first line is a comment with a file's name, by that."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    named = ((NAMED.match(text), text) for text in blocks)
    return {match[1]: text for match, text in named if match is not None}


def install(page: Path, site: Path) -> list[Path]:
    """Lay a guide's files out in a folder, and have its package found there as an installed one is:
    by the entry points of its pyproject.toml, which setuptools would write."""
    paths = []
    for name, text in files(page).items():
        paths.append(site / name)
        paths[-1].write_text(text, encoding="utf-8")
    project = tomllib.loads((site / "pyproject.toml").read_text(encoding="utf-8"))
    name, version = project["project"]["name"], project["project"]["version"]
    for module in project["tool"]["setuptools"]["py-modules"]:
        assert (site / f"{module}.py") in paths, f"{page.name}: {module} is none of its files"
    package = site / f"{name.replace('-', '_')}-{version}.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entries = project["project"]["entry-points"]
    (package / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "\n".join(f"{key} = {value}" for key, value in named.items())
            for group, named in entries.items()
        )
    )
    return paths
