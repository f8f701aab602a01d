"""search_spaces/reference/ is as the models and the parsers are now, and tells every field."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.ablate.reference.markdown import slug
from tests.ablate.reference.pages import COMMAND, FOLDER, pages

CELLS = re.compile(r"(?<!\\)\|")  # what parts the cells of a row


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return pages()


def test_the_pages_are_current(now: dict[str, str]) -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(now)
    for name, text in now.items():
        there = (FOLDER / name).read_text(encoding="utf-8")
        assert there == text, f"search_spaces/reference/{name} is stale; run: {COMMAND}"


def rows(page: str) -> Iterator[dict[str, str]]:
    """Rows of all tables, by the names of their columns."""
    head: list[str] = []
    for line in page.splitlines():
        if not line.startswith("| "):
            head = []
            continue
        cells = [cell.strip() for cell in CELLS.split(line)[1:-1]]
        if not head:
            head = cells
        elif cells[0] != "---":
            yield dict(zip(head, cells, strict=True))


def test_every_field_has_a_meaning(now: dict[str, str]) -> None:
    fields = list(rows(now["fields.md"]))
    assert len(fields) > 300
    missing = [row["field"] for row in fields if not row.get("meaning")]
    assert not missing, f"{missing}: tell them in the docstrings of their models, `field: meaning`"


@pytest.mark.parametrize("name", ["fields.md", "commands.md"])
def test_links_lead_to_headings(name: str, now: dict[str, str]) -> None:
    headings = [slug(h) for h in re.findall(r"^#+ (.*)$", now[name], re.MULTILINE)]
    assert len(set(headings)) == len(headings), "two headings of one anchor"
    assert set(re.findall(r"\]\(#([^)]*)\)", now[name])) <= set(headings)
