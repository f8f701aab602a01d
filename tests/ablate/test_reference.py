"""docs/reference/ is as models, parsers, docstrings and recipes are now, and tells every
field, and every option and logged quantity of methods and losses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.ablate.reference import components, recipes
from tests.ablate.reference.markdown import slug
from tests.ablate.reference.pages import COMMAND, FOLDER, pages
from trainables.losses.softmax import NormSoftmax
from trainables.methods.ddml import DDML

CELLS = re.compile(r"(?<!\\)\|")  # what parts the cells of a row


@pytest.fixture(scope="module")
def fields() -> components.FieldsPage:
    return components.FieldsPage()


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return pages()


def test_the_pages_are_current(now: dict[str, str]) -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.md")}
    assert there == set(now), f"pages too many or missing; run: {COMMAND}"
    for name, text in now.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, (
            f"docs/reference/{name} is stale; run: {COMMAND}"
        )


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


def test_links_lead_to_files_and_headings(now: dict[str, str]) -> None:
    known = {
        name: [slug(h) for h in re.findall(r"^#+ (.*)$", text, re.M)] for name, text in now.items()
    }
    for name, headings in known.items():
        assert len(set(headings)) == len(headings), f"{name}: two headings of one anchor"
        for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", now[name]):
            path = (FOLDER / name).parent / target if target else FOLDER / name
            assert path.exists(), f"{name}: {target} is not there"
            page = str(path.resolve().relative_to(FOLDER.parents[1]))
            inside = page.removeprefix("docs/reference/")
            assert not anchor or inside not in known or anchor in known[inside], (
                f"{name}: #{anchor}"
            )


@pytest.mark.parametrize(
    ("cls", "changed", "fault"),
    [
        (DDML, ("AAAI 2025, ", ""), "a year"),
        (DDML, ("https://doi.org", "doi"), "a link"),
        (DDML, ("\n        L = ", "\n    L = "), "no equation"),
        (DDML, ("std_to_mean: ", "a ratio: "), "explain in `Logged:` .'std_to_mean'"),
        (DDML, ("        std: mean", "        mean_of_std: mean"), "and not .'mean_of_std'"),
        (DDML.Config, ("logit_scale, ", ""), "logit_scale lacks a source"),
        (DDML.Config, ('split: "closed"', '"closed"'), "split lacks a meaning"),
    ],
)
def test_a_docstring_that_lacks_something_is_refused(
    cls: type,
    changed: tuple[str, str],
    fault: str,
    fields: components.FieldsPage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doc = str(cls.__doc__)
    assert changed[0] in doc
    monkeypatch.setattr(cls, "__doc__", doc.replace(*changed))
    with pytest.raises(components.Missing, match=fault):
        list(components.sections("method", "ddml", fields, {}))


def test_a_component_without_a_measured_cost_is_refused() -> None:
    with pytest.raises(components.Missing, match="has no cost"):
        components.cost({"costs": {}}, "method ddml")


def test_a_page_has_results_and_printed_numbers(now: dict[str, str]) -> None:
    """As the verdict file and the published table have them."""
    ddml = now["methods/ddml.md"]
    assert (
        "own best](../../../search_spaces/results/ddml.md) | DDML (+NormSoftmax), not neutral"
        in ddml
    )
    assert "| CUB/R@1 | DDML(+NS) | 65.96 ± 0.06 | +1.31 | NS |" in ddml
    assert "[ddml.yaml](../../../search_spaces/ddml.yaml)" in ddml
    assert "No result of this method has been judged" in now["methods/hier.md"]
    assert ("loss", NormSoftmax.Config().name) in recipes.tuned()
