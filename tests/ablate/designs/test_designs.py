"""Designs against known tables and by their properties: balance, orthogonality, what is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.designs.components import AddOne, Components, LeaveOneOut
from ablate.designs.factorial import Factorial
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.sweep.progression import Progression
from tests.ablate.designs.plans import plan

PARTS = {
    "agnostic": {"method.alpha": 0},
    "specific": {"method.beta": 0},
    "split": {"method.gamma": 0},
}


# ------------------------------------------------------------------ factors and levels


def test_factors_of_many_levels_and_rules_that_exclude() -> None:
    study = Factorial.model_validate(
        {
            "design": "factorial",
            "factors": {
                "loss": [{"name": "normsoftmax"}, {"name": "proxy_anchor", "alpha": 16}],
                "optimizer.betas": [[0.9, 0.999], [0.8, 0.99], [0.7, 0.9]],
                "head": {"small": {"embedding.dim": 64}, "large": {"embedding": {"dim": 512}}},
            },
            "exclude": [
                {"loss": {"name": "normsoftmax"}, "optimizer.betas": [0.8, 0.99]},
                {"optimizer.betas": [[0.9, 0.999], [0.7, 0.9]], "head": "large"},
            ],
        }
    )
    found = [
        (p.coords["loss"]["name"], p.coords["optimizer.betas"][0], p.coords["head"])
        for p in study.all_points
    ]
    assert found == [
        ("normsoftmax", 0.9, "small"),
        ("normsoftmax", 0.7, "small"),
        ("proxy_anchor", 0.9, "small"),
        ("proxy_anchor", 0.8, "small"),
        ("proxy_anchor", 0.8, "large"),
        ("proxy_anchor", 0.7, "small"),
    ]
    last = study.all_points[4]
    assert last.cell == "loss=proxy_anchor(alpha=16),optimizer.betas=[0.8, 0.99],head=large"
    assert last.values["embedding"] == {"dim": 512}
    resolved = plan(f=study.model_dump()).resolve_config("f", last)
    assert (resolved.loss.name, resolved.loss.alpha) == ("proxy_anchor", 16)
    assert resolved.embedding.dim == 512 and resolved.optimizer.betas == (0.8, 0.99)


def test_one_factor_lists_the_centre_once() -> None:
    study = {"design": "one_factor", "factors": {"method.alpha": [0.1, 1, 10], "method.beta": [2]}}
    made = plan(around_centre=study)
    cells = [
        made.build_cells("around_centre", p, i, ())[0]
        for i, p in enumerate(made.spec.studies["around_centre"].all_points)
    ]
    assert [c.cell for c in cells] == [
        "centre",
        "method.alpha=0.1",
        "method.alpha=1",
        "method.alpha=10",
        "method.beta=2",
    ]
    assert cells[0].coords == {} and cells[1].coords == {"method.alpha": 0.1}
    centre = cells[0].config["method"]["alpha"]
    same = [c.cell for c in cells[1:] if c.trial_id == cells[0].trial_id]
    assert same == [f"method.alpha={centre:g}"], "the centre's own level is the centre's trial"


# ------------------------------------------------------------------------- components


def test_leave_one_out_and_add_one_share_the_cells_of_all_combinations(tmp_path: Path) -> None:
    made = plan(
        every={"design": "components", "components": PARTS},
        without={"design": "leave_one_out", "components": PARTS},
        only={"design": "add_one", "components": PARTS},
    )
    with Ledger(tmp_path / "l.sqlite") as ledger:
        progression = Progression(made, Facts(ledger, None, retry_failed=False), record=False)
        progression.list_new_cells()
    ids = {n: {c.cell: c.trial_id for c in s.cells} for n, s in progression.studies.items()}
    assert list(ids["without"]) == ["all", "without agnostic", "without specific", "without split"]
    assert list(ids["only"]) == ["none", "only agnostic", "only specific", "only split"]
    assert len(set(ids["every"].values())) == 8
    assert set(ids["without"].values()) | set(ids["only"].values()) == set(ids["every"].values())
    assert ids["without"]["without split"] == ids["every"]["agnostic=on,specific=on,split=off"]
    assert ids["only"]["only split"] == ids["every"]["agnostic=off,specific=off,split=on"]
    coords = [p.coords for p in made.spec.studies["without"].all_points]
    assert coords == [{"cell": n} for n in ("all", "agnostic", "specific", "split")]


@pytest.mark.parametrize("design", [Components, LeaveOneOut, AddOne])
def test_a_path_belongs_to_one_component(design: Any) -> None:
    name = design.model_fields["design"].annotation.__args__[0]
    with pytest.raises(ValueError, match="Keep the path in one"):
        design.model_validate({"design": name, "components": {"a": {"x": 1}, "b": {"x": 2}}})


# ----------------------------------------------------------------------------- plans
