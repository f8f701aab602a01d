"""Every figure of the five papers that shows a result has its recipe, as the page of them says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ablate.spec.read import read_spec

FOLDER = Path(__file__).parents[2] / "search_spaces"
TABLE = re.compile(r"<!-- figures of papers -->\n(.*?)<!-- end figures of papers -->", re.DOTALL)
# As the papers number them; the others of theirs are drawings of ideas and networks.
RESULTS = {
    "DDML": ("1a", "1b", "3", "4a", "4b", "4c", "supplement, affinity", "supplement, imbalance"),
    "DetReg": (),
    "DVML": ("1", "3", "4", "5"),
    "IDML": ("4", "5", "6", "7", "8"),
    "NIR": ("3", "4"),
}


def listed() -> list[tuple[str, str, str, str]]:
    """Paper, figure, recipe and the title of the part, line by line."""
    found = TABLE.search((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    rows = [line.strip("| \n").split(" | ") for line in found[1].strip().splitlines()[2:]]
    return [(paper, figure, recipe.strip("`"), title) for paper, figure, recipe, title in rows]


def test_every_figure_with_results_is_listed_and_no_other() -> None:
    assert {(paper, figure) for paper, figure, *_ in listed()} == {
        (paper, figure) for paper, figures in RESULTS.items() for figure in figures
    }


@pytest.mark.parametrize("recipe", sorted({recipe for *_, recipe, _ in listed()}))
def test_what_is_listed_is_in_the_recipe(recipe: str) -> None:
    report = read_spec(FOLDER / recipe).spec.report
    parts = (*report.heatmaps, *report.curves, *report.factor_curves, *report.figures)
    titles = [part.title for part in parts]
    for *_, file, title in listed():
        if file == recipe:
            assert titles.count(title) == 1, title


def test_what_calls_itself_a_figure_of_a_paper_is_listed() -> None:
    """But for other readings of Fig. 4 and for what another recipe shows of one again."""
    every = {title for *_, title in listed()}
    for name in ("ddml", "ddml_toy", "dvml", "idml", "nir", "detreg"):
        report = read_spec(FOLDER / f"{name}.yaml").spec.report
        for part in (*report.heatmaps, *report.curves, *report.factor_curves, *report.figures):
            if part.title.startswith("Fig.") and "exchanged" not in part.title:
                assert part.title in every, part.title
