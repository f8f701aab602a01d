"""`report.sources` names a file beside the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.spec.read import read_spec
from trainables.words.errors import ConfigError

SPEC = """
name: x
report: {sources: x.sources.yaml}
studies: {a: {design: grid, grid: {optimizer.lr: [1e-3]}}}
"""
SOURCES = """
paper: x
sources:
  - studies: ["*"]
    fields: [[optimizer.lr, 1e-3, "Section 1"]]
"""


def written(folder: Path, sources: str | None) -> Path:
    spec = folder / "x.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    if sources is not None:
        (folder / "x.sources.yaml").write_text(sources, encoding="utf-8")
    return spec


def test_what_stands_there_is_the_recipes(tmp_path: Path) -> None:
    (block,) = read_spec(written(tmp_path, SOURCES)).spec.report.sources
    assert block.fields == (("optimizer.lr", 1e-3, "Section 1"),)


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (None, "x.sources.yaml"),
        ("paper: x\n", "no list `sources`"),
        ("sources: [{studies: ['*'], field: []}]\n", "report.sources.0.field"),
    ],
)
def test_what_is_none_is_refused(sources: str | None, found: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_spec(written(tmp_path, sources))
    assert found in str(error.value)
