"""A neutral cell that won stays neutral in all studies that take it, whatever their rows print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.plan.neutral import is_neutral
from ablate.sweep.dispatch import Dispatch
from tests.ablate import specs
from tests.ablate.driven import run

NEAR = {"optimizer.lr": {"low": 8e-4, "high": 1.2e-3, "log": True}}
FAR = {"optimizer.lr": {"low": 5e-3, "high": 1e-2, "log": True}}  # so that neutral wins
PRINTED = {
    "ddml": {"name": "ddml", "alpha": 3.0, "beta": 0.5, "gamma": 1e-3},
    "detreg": {"name": "detreg", "lambda1": 0.3, "flow": {"kind": "realnvp", "depth": 2}},
    "idml": {"name": "idml", "tau": 5, "gamma": 0.1, "mixing": "mixup"},
    "nir": {"name": "nir", "omega": 5, "weight": 0.1},
}
each_method = pytest.mark.parametrize("method", sorted(PRINTED))


def tuned(
    name: str, method: dict[str, Any], space: dict[str, Any], **finalists: Any
) -> dict[str, Any]:
    search = {"design": "search", "trials": 4, "round": 2, "startup": 2, "seeds": [100]}
    promote = {"design": "promote", "of": f"tune_{name}", "best": 2, "seeds": [101]}
    trial = {"trial": {"method": method}}
    of_search = {} if name == "plain" else {"neutral": {"best_of": "tune_plain"}}
    return {
        f"tune_{name}": {**search, **trial, "space": space, **of_search},
        f"best_{name}": {**promote, **trial, **finalists},
    }


def swept(method: str, folder: Path) -> Dispatch:
    plain = {"name": "plain"}
    rows = {
        name: {"around": {"best_of": f"best_{name}"}, "trial": {"method": own}}
        for name, own in (("plain", plain), ("row", PRINTED[method]))
    }
    studies = {
        **tuned("plain", plain, NEAR),
        **tuned("row", PRINTED[method], FAR, neutral={"best_of": "best_plain"}),
        "rows": {"design": "compare", "variants": rows, "seeds": 2},
    }
    spec = {"name": "wins", "trial": {"training.epochs": 2}, "studies": studies}
    return run(specs.plan(spec), folder)


@each_method
def test_what_its_rows_print_gives_it_nothing_back(method: str, tmp_path: Path) -> None:
    made = swept(method, tmp_path)
    finalists = {cell.cell: cell for cell in made.progression.studies["best_row"].cells}
    assert finalists["rank=1"].coords["source"] == "neutral"
    assert is_neutral(finalists["rank=1"].config)
    assert not is_neutral(finalists["rank=2"].config)
    rows = {cell.cell: cell for cell in made.progression.studies["rows"].cells}
    assert is_neutral(rows["row"].config)
    assert rows["row"].config["optimizer"]["lr"] == rows["plain"].config["optimizer"]["lr"]
    other = rows["row, not neutral"].config["method"]
    for key, value in PRINTED[method].items():
        assert other[key] == value or value.items() <= other[key].items()


def test_a_factor_crossed_with_it_may_give_it_what_it_varies(tmp_path: Path) -> None:
    """Components around a neutral centre are of the study, which says what they are."""
    terms = {
        "design": "components",
        "around": {"best_of": "tune_row"},
        "trial": {"method": {"name": "ddml"}},
        "components": {"agnostic": {"method.alpha": 0}},
    }
    studies = {
        **{k: v for k, v in tuned("plain", {"name": "plain"}, NEAR).items() if "tune" in k},
        "tune_row": tuned("row", PRINTED["ddml"], FAR)["tune_row"],
        "terms": terms,
    }
    made = run(specs.plan({"name": "wins", "studies": studies}), tmp_path)
    cells = {cell.cell: cell for cell in made.progression.studies["terms"].cells}
    assert {cell.config["method"]["alpha"] for cell in cells.values()} == {0}
