"""Every figure of the five papers that shows a result has its recipe, as the page of them says."""

from __future__ import annotations

import re
from pathlib import Path

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


def list_titles(recipe: str) -> list[str]:
    report = read_spec(FOLDER / recipe).spec.report
    parts = (*report.heatmaps, *report.curves, *report.factor_curves, *report.figures)
    return [part.title for part in parts]


def test_every_figure_with_results_is_listed_and_in_its_recipe_and_no_other() -> None:
    """But for other readings of Fig. 4 and for what another recipe shows of one again."""
    table = TABLE.search((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert table is not None
    rows = [line.strip("| \n").split(" | ") for line in table[1].strip().splitlines()[2:]]
    assert {(paper, figure) for paper, figure, *_ in rows} == {
        (paper, figure) for paper, figures in RESULTS.items() for figure in figures
    }
    for *_, recipe, title in rows:
        assert list_titles(recipe.strip("`")).count(title) == 1, title
    listed = {title for *_, title in rows}
    for name in ("ddml", "comparisons/ddml_bases", "dvml", "idml", "nir", "detreg"):
        for title in list_titles(f"{name}.yaml"):
            if title.startswith("Fig.") and "exchanged" not in title:
                assert title in listed, title
