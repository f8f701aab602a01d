"""Designs against known tables and by their properties: balance, orthogonality, what is shared."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ablate.designs.compare import Compare
from ablate.designs.components import AddOne, Components, LeaveOneOut
from ablate.designs.factorial import Factorial
from ablate.designs.one_factor import OneFactor
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.sweep.progression import Progression
from tests.ablate import specs
from tests.ablate.designs.plans import CROSS, plan
from trainables.errors import ConfigError

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
        for p in study.listed
    ]
    assert found == [
        ("normsoftmax", 0.9, "small"),
        ("normsoftmax", 0.7, "small"),
        ("proxy_anchor", 0.9, "small"),
        ("proxy_anchor", 0.8, "small"),
        ("proxy_anchor", 0.8, "large"),
        ("proxy_anchor", 0.7, "small"),
    ]
    last = study.listed[4]
    assert last.cell == "loss=proxy_anchor(alpha=16),optimizer.betas=[0.8, 0.99],head=large"
    assert last.values["embedding"] == {"dim": 512}
    resolved = plan(f=study.model_dump()).resolved("f", last)
    assert (resolved.loss.name, resolved.loss.alpha) == ("proxy_anchor", 16)
    assert resolved.embedding.dim == 512 and resolved.optimizer.betas == (0.8, 0.99)


def test_long_levels_have_names_of_their_own() -> None:
    long = [{"name": "adamw", "x": "y" * 80 + str(i)} for i in range(3)]
    study = OneFactor.model_validate({"design": "one_factor", "factors": {"f": long}})
    assert len({p.cell for p in study.listed}) == 4


def test_one_factor_lists_the_centre_once() -> None:
    study = {"design": "one_factor", "factors": {"method.alpha": [0.1, 1, 10], "method.beta": [2]}}
    made = plan(around_centre=study)
    cells = [
        made.cells("around_centre", p, i, ())[0]
        for i, p in enumerate(made.spec.studies["around_centre"].listed)
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
        progression.advance()
    ids = {n: {c.cell: c.trial_id for c in s.cells} for n, s in progression.studies.items()}
    assert list(ids["without"]) == ["all", "without agnostic", "without specific", "without split"]
    assert list(ids["only"]) == ["none", "only agnostic", "only specific", "only split"]
    assert len(set(ids["every"].values())) == 8
    assert set(ids["without"].values()) | set(ids["only"].values()) == set(ids["every"].values())
    assert ids["without"]["without split"] == ids["every"]["agnostic=on,specific=on,split=off"]
    assert ids["only"]["only split"] == ids["every"]["agnostic=off,specific=off,split=on"]
    coords = [p.coords for p in made.spec.studies["without"].listed]
    assert coords == [{"cell": n} for n in ("all", "agnostic", "specific", "split")]


@pytest.mark.parametrize("design", [Components, LeaveOneOut, AddOne])
def test_a_path_belongs_to_one_component(design: Any) -> None:
    name = design.model_fields["design"].annotation.__args__[0]
    with pytest.raises(ValueError, match="in one component"):
        design.model_validate({"design": name, "components": {"a": {"x": 1}, "b": {"x": 2}}})


# -------------------------------------------------------------------------- refusals

LEVELS = {"A": [1, 2], "B": [1, 2], "C": [1, 2]}


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ({"design": "factorial", "factors": {"a": [1]}}, ["s.factors.a", "1 level", "at least 2"]),
        ({"design": "factorial", "factors": {"a": 1}}, ["s.factors.a", "a list"]),
        ({"design": "factorial", "factors": {"a": ["x", "x"]}}, ["s.factors.a", "once"]),
        (
            {
                "design": "factorial",
                "factors": {"a": {"l": {"p.q": 1}, "m": {"p.q": 2}}, "p.q": [1, 2]},
            },
            ["s.factors.p.q", "in one factor"],
        ),
        ({"design": "factorial", "factors": {"a": {"l": 1}}}, ["s.factors.a"]),
        (
            {"design": "factorial", "factors": LEVELS, "exclude": [{"D": 1}]},
            ["s.exclude.0.D", "the unknown factor 'D'", "A, B, C"],
        ),
        (
            {"design": "factorial", "factors": LEVELS, "exclude": [{"A": 3}]},
            ["s.exclude.0.A", "found 3", "1, 2"],
        ),
        (
            {"design": "factorial", "factors": LEVELS, "exclude": [{"A": [1, 2]}]},
            ["s.exclude", "no combination"],
        ),
        (
            {"design": "factorial", "factors": LEVELS, "resolution": 4},
            ["s.resolution", "fraction: fractional"],
        ),
        (
            {"design": "factorial", "factors": LEVELS | {"D": [1, 2, 3]}, "fraction": "fractional"},
            ["s.factors.D", "3 levels", "2 in a fractional"],
        ),
        (
            {
                "design": "factorial",
                "factors": LEVELS,
                "fraction": "fractional",
                "generators": {"C": ["A", "D"]},
            },
            ["s.generators.C", "'D'", "one of A, B"],
        ),
        (
            {
                "design": "factorial",
                "factors": LEVELS,
                "fraction": "fractional",
                "resolution": 4,
                "generators": {"C": ["A", "B"]},
            },
            ["s.generators", "resolution 3", "I = A·B·C"],
        ),
        (
            {
                "design": "factorial",
                "factors": LEVELS,
                "fraction": "plackett_burman",
                "exclude": [{"A": 1, "B": 1, "C": 1}],
            },
            ["s.exclude", "the run A=1,B=1,C=1"],
        ),
        (
            {
                "design": "factorial",
                "factors": {c: [1, 2] for c in "abcdefghijklmnopqrstuvwxyz"},
                "fraction": "plackett_burman",
            },
            ["s.factors", "26 of them", "at most 23"],
        ),
        (
            {"design": "factorial", "factors": {c: [1, 2] for c in "abcdefghijklmnopqrs"}},
            ["s.factors", "524288 combinations"],
        ),
        (
            {"design": "factorial", "factors": {"method.alhpa": [1, 2]}},
            ["s.factors", "'method.alpha'?"],
        ),
        ({"design": "factorial", "factors": {"method.alpha": [1, -2]}}, ["method.alpha", "-2"]),
        (
            {
                "design": "factorial",
                "factors": {"data": [{"name": "typefaces"}, {"name": "birds"}]},
            },
            ["s.factors.data.name", "birds"],
        ),
        ({"design": "compare"}, ["studies.s", "variants and cross"]),
        ({"design": "compare", "cross": {"variant": {"a": {}}}}, ["s.cross.variant"]),
        ({"design": "compare", "cross": {"m": {"a": {"trail": {}}}}}, ["s.cross.m.a.trail"]),
        (
            {"design": "compare", "cross": {"m": {"a": {"trial": {"method.alhpa": 1}}}}},
            ["s.cross.m.a.trial", "'alpha'?"],
        ),
        (
            {"design": "compare", "around": {"best_of": "t_{l}"}, "cross": {"m": {"a": {}}}},
            ["s.around", "{l}", "one of m"],
        ),
        (
            {"design": "compare", "around": {"best_of": "t_{m}"}, "cross": {"m": {"a": {}}}},
            ["s.around.best_of", "'t_a'"],
        ),
        (
            CROSS | {"exclude": [{"method": "dml"}]},
            ["s.exclude.0.method", 'found "dml"', 'a level of method: "plain", "ddml"', "`cross`"],
        ),
        (CROSS | {"exclude": [{"method": []}]}, ["s.exclude.0.method", "no level", "Remove"]),
        (
            CROSS | {"exclude": [{"size": 3}]},
            ["s.exclude.0.size", "'size'", "one of method, loss, data"],
        ),
        (CROSS | {"exclude": [{"loss": ["ns", "pa"]}]}, ["s.exclude", "no combination"]),
        (CROSS | {"exclude": [{}]}, ["s.exclude.0"]),
        (
            CROSS | {"variants": {"a": {}}, "exclude": [{"variant": "b"}]},
            ["s.exclude.0.variant", 'found "b"', "as it is written in `variants`"],
        ),
        (
            {
                "design": "compare",
                "cross": {
                    "m": {str(i): {} for i in range(101)},
                    "l": {str(i): {} for i in range(100)},
                },
            },
            ["studies.s", "at most 10000 cells, not 10100"],
        ),
        (
            {"design": "compare", "variants": {"a": {}, "b": {}}, "exclude": [{"variant": "a"}]},
            ["s.exclude", "one factor", "Remove the level"],
        ),
        ({"design": "one_factor", "factors": {}}, ["s.factors"]),
        ({"design": "leave_one_out", "components": {"a": {}}}, ["s.components.a"]),
    ],
    ids=str,
)
def test_one_line_for_a_design_that_cannot_be(study: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(s=study)
    message = str(caught.value)
    assert "\n" not in message and ": found " in message and "; expected " in message
    assert not [word for word in words if word not in message], message
    assert "[" not in message.partition(": found")[0], message


# ----------------------------------------------------------------------------- plans


def test_a_plan_of_ten_thousand_cells_is_quick(tmp_path: Path) -> None:
    """Checked and unfolded; about half a millisecond a cell of one free core. Printed."""
    levels = {
        "method.beta": [i / 100 for i in range(100)],
        "method.gamma": [i / 1000 for i in range(100)],
    }
    began = time.perf_counter()
    made = plan(big={"design": "grid", "grid": levels})
    with Ledger(tmp_path / "l.sqlite") as ledger:
        progression = Progression(made, Facts(ledger, None, retry_failed=False), record=False)
        cells = progression.advance()
    seconds = time.perf_counter() - began
    print(f"10,000 cells planned in {seconds:.1f} s")
    assert len({cell.trial_id for cell in cells}) == 10_000
    assert seconds < 30


def test_unused_options_leave_a_sweep_what_it_was() -> None:
    """The ids of sweeps whose ledgers exist already."""
    assert specs.plan().sweep_id == "0756fe74b404"


def test_compare_studies_of_variants_alone_keep_their_cells() -> None:
    study = Compare.model_validate({"design": "compare", "variants": {"a": {}, "b,c": {}}})
    assert [(p.cell, p.coords) for p in study.listed] == [
        ("a", {"variant": "a"}),
        ("b,c", {"variant": "b,c"}),
    ]
