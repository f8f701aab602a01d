"""Designs against known tables and by their properties: balance, orthogonality, what is shared."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard

from ablate.designs import compare, fractions
from ablate.designs.compare import Compare
from ablate.designs.components import AddOne, Components, LeaveOneOut
from ablate.designs.factorial import Factorial
from ablate.designs.one_factor import OneFactor
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.plan import advice
from ablate.sweep.progression import Progression
from ablate.sweep.uses import uses
from tests.ablate import specs
from trainables.errors import ConfigError

DDML = {"method": {"name": "ddml"}}
PARTS = {
    "agnostic": {"method.alpha": 0},
    "specific": {"method.beta": 0},
    "split": {"method.gamma": 0},
}


def plan(**studies: dict[str, Any]) -> Any:
    return specs.plan({"name": "x", "trial": DDML, "studies": studies})


def factorial(count: int, **more: Any) -> Factorial:
    factors = {letter: ["-", "+"] for letter in "ABCDEFGHIJKLMNOPQRSTUVW"[:count]}
    return Factorial.model_validate({"design": "factorial", "factors": factors, **more})


def signs(study: Factorial) -> np.ndarray:
    return np.array([[1 if v == "+" else -1 for v in p.coords.values()] for p in study.listed])


# ---------------------------------------------------------------- two-level fractions


def test_plackett_burman_12_is_the_papers_table() -> None:
    """Plackett and Burman 1946, the design for N = 12, as in every textbook (rows of signs)."""
    table = (
        "++-+++---+- -++-+++---+ +-++-+++--- -+-++-+++-- --+-++-+++- ---+-++-+++ "
        "+---+-++-++ ++---+-++-+ +++---+-++- -+++---+-++ +-+++---+-+ -----------"
    )
    found = [
        "".join("+" if v > 0 else "-" for v in row)
        for row in signs(factorial(11, fraction="plackett_burman"))
    ]
    assert " ".join(found) == table


@pytest.mark.parametrize("factors", range(1, fractions.MAX_SCREENED + 1))
def test_plackett_burman_is_balanced_and_orthogonal(factors: int) -> None:
    runs = 2 * np.array(fractions.plackett_burman(factors)) - 1
    n = len(runs)
    assert n % 4 == 0 and factors < n <= factors + 4, "the fewest runs"
    assert (runs.T @ runs == n * np.eye(factors, dtype=int)).all()
    assert (runs.sum(0) == 0).all()
    assert len({tuple(run) for run in runs.tolist()}) == n or factors < 3


def test_plackett_burman_8_spans_the_columns_of_sylvesters_matrix() -> None:
    """An independent construction: N = 8 is regular, so products of columns are columns."""
    runs = 2 * np.array(fractions.plackett_burman(7)) - 1
    columns = {tuple(c) for c in runs.T.tolist()} | {tuple(-c) for c in runs.T}
    for a, b in itertools.combinations(range(7), 2):
        assert tuple((runs[:, a] * runs[:, b]).tolist()) in columns
    ours = np.column_stack([np.ones(8, dtype=int), runs])
    assert abs(np.linalg.det(ours)) == pytest.approx(abs(np.linalg.det(hadamard(8))))


def test_2_4_1_has_the_defining_relation_abcd() -> None:
    study = factorial(4, fraction="fractional")
    runs = signs(study)
    assert len(runs) == 8 and (runs.prod(axis=1) == 1).all(), "I = ABCD"
    assert study.notes() == ["2^(4-1) of resolution 4, I = A·B·C·D"]
    half = {tuple(run) for run in itertools.product((-1, 1), repeat=4) if np.prod(run) == 1}
    assert {tuple(run) for run in runs.tolist()} == half


@pytest.mark.parametrize(
    ("factors", "least", "runs", "found"),
    # Box, Hunter and Hunter, table 6.22: the smallest 2^(k-p) of each resolution.
    [
        (3, 3, 4, 3),
        (5, 3, 8, 3),
        (7, 3, 8, 3),
        (15, 3, 16, 3),
        (4, 4, 8, 4),
        (6, 4, 16, 4),
        (8, 4, 16, 4),
        (9, 4, 32, 4),
        (5, 5, 16, 5),
        (6, 5, 32, 6),
        (7, 5, 64, 7),
        (8, 5, 64, 5),
        (11, 5, 128, 5),
    ],
)
def test_smallest_fractions(factors: int, least: int, runs: int, found: int) -> None:
    study = factorial(factors, fraction="fractional", resolution=least)
    array = signs(study)
    assert len(array) == runs and len({tuple(r) for r in array.tolist()}) == runs
    assert (array.T @ array == runs * np.eye(factors, dtype=int)).all()
    assert (array.sum(0) == 0).all()
    # The resolution by brute force: the least number of columns whose product is constant.
    for size in range(1, factors + 1):
        constant = [
            abs(array[:, chosen].prod(axis=1).sum()) == runs
            for chosen in map(list, itertools.combinations(range(factors), size))
        ]
        if any(constant):
            break
        if size == least and found == least:
            raise AssertionError("a word of this length was promised")
    assert size == found


def test_generators_by_name() -> None:
    study = factorial(5, fraction="fractional", generators={"D": ["A", "B"], "E": ["A", "C"]})
    runs = signs(study)
    assert len(runs) == 8
    assert (runs[:, 3] == runs[:, 0] * runs[:, 1]).all()
    assert (runs[:, 4] == runs[:, 0] * runs[:, 2]).all()
    assert study.notes() == ["2^(5-2) of resolution 3, I = A·B·D = A·C·E = B·C·D·E"]


def test_generators_need_not_be_the_last_factors() -> None:
    study = factorial(3, fraction="fractional", generators={"A": ["B", "C"]})
    runs = signs(study)
    assert list(study.listed[0].coords) == ["A", "B", "C"]
    assert (runs[:, 0] == runs[:, 1] * runs[:, 2]).all()


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


# ----------------------------------------------------------------------- comparisons

CROSS: dict[str, Any] = {
    "design": "compare",
    "cross": {
        "method": {
            "plain": {"trial": {"method": {"name": "plain"}}},
            "ddml": {"trial": {"method": {"name": "ddml"}}},
        },
        "loss": {
            "ns": {"trial": {"loss": {"name": "normsoftmax"}}},
            "pa": {"trial": {"loss": {"name": "proxy_anchor"}}},
        },
        "data": {
            "typefaces": {"trial": {"data.name": "typefaces"}},
            "emoji": {"trial": {"data.name": "emoji"}},
        },
    },
}


def test_crossed_factors_are_all_combinations() -> None:
    made = plan(rows=CROSS)
    study = made.spec.studies["rows"]
    assert len(study.listed) == 8
    assert study.listed[1].cell == "method=plain,loss=ns,data=emoji"
    assert study.listed[1].coords == {"method": "plain", "loss": "ns", "data": "emoji"}
    for point in study.listed:
        found = made.resolved("rows", point)
        assert found.method.name == point.coords["method"]
        assert found.data.name == point.coords["data"]
        loss = {"ns": "normsoftmax", "pa": "proxy_anchor"}[point.coords["loss"]]
        assert found.loss.name == loss


def test_the_layers_of_a_combination_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[str] = []
    plain = compare.merge

    def merge(layers: Any) -> dict[str, Any]:
        layers = list(layers)
        merged.append(" ".join(layer.where for layer in layers))
        return plain(layers)

    monkeypatch.setattr(compare, "merge", merge)
    after = {"design": "grid", "around": {"best_of": "rows"}, "grid": {"optimizer.lr": [1e-3]}}
    study = plan(rows=CROSS, after=after).spec.studies["rows"]
    given = [study.gives(point) for _ in range(2) for point in study.listed]
    assert len(merged) == len(set(merged)) == 8
    given[0].clear()
    assert study.gives(study.listed[0])["method.name"] == "plain", "what is given is a copy"


def test_variants_are_a_factor_beside_the_crossed_ones() -> None:
    both = {**CROSS, "variants": {"a": {}, "b": {"trial": {"embedding.dim": 64}}}}
    study = plan(rows=both).spec.studies["rows"]
    assert len(study.listed) == 16
    assert list(study.listed[0].coords) == ["variant", "method", "loss", "data"]


def test_a_comparison_leaves_out_the_combinations_that_rules_exclude() -> None:
    rules = [{"method": "ddml", "loss": "pa"}, {"loss": "ns", "data": ["emoji"]}]
    made = plan(rows=CROSS | {"exclude": rules})
    study = made.spec.studies["rows"]
    found = [tuple(point.coords.values()) for point in study.listed]
    assert found == [
        ("plain", "ns", "typefaces"),
        ("plain", "pa", "typefaces"),
        ("plain", "pa", "emoji"),
        ("ddml", "ns", "typefaces"),
    ]
    assert made.size("rows") == 4 * len(made.seeds("rows"))
    assert study.listed[0].cell == "method=plain,loss=ns,data=typefaces"
    assert plan(rows=CROSS | {"exclude": []}).sweep_id == plan(rows=CROSS).sweep_id
    assert made.sweep_id != plan(rows=CROSS).sweep_id


def test_only_what_rules_leave_counts_as_cells() -> None:
    cross = {"m": {str(i): {} for i in range(101)}, "l": {str(i): {} for i in range(100)}}
    rows = {
        "design": "compare",
        "cross": cross,
        "exclude": [{"m": [str(i) for i in range(1, 101)]}],
    }
    assert len(plan(rows=rows).spec.studies["rows"].listed) == 100


def test_a_combination_that_is_left_out_needs_no_study_of_its_own() -> None:
    rows = {
        "design": "compare",
        "around": {"best_of": "tune_{loss}"},
        "exclude": [{"loss": "ms"}],
        "variants": {"plain": {}, "wide": {"trial": {"embedding.dim": 512}}},
        "cross": {
            "loss": {
                "normsoftmax": {"trial": {"loss": {"name": "normsoftmax"}}},
                "ms": {"trial": {"loss": {"name": "multi_similarity"}}},
            }
        },
    }
    made = plan(rows=rows, tune_normsoftmax=search("normsoftmax", 6))
    assert made.tuning() == {
        "rows": {"variant=plain,loss=normsoftmax": 12, "variant=wide,loss=normsoftmax": 12}
    }


def search(loss: str, trials: int) -> dict[str, Any]:
    return {
        "design": "search",
        "trials": trials,
        "seeds": 2,
        "trial": {"loss": {"name": loss}},
        "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2}},
    }


def test_every_combination_has_a_tuned_centre_of_its_own(tmp_path: Path) -> None:
    rows = {
        "design": "compare",
        "around": {"best_of": "tune_{loss}"},
        "cross": {
            "loss": {
                "normsoftmax": {"trial": {"loss": {"name": "normsoftmax"}}},
                "proxy_anchor": {"trial": {"loss": {"name": "proxy_anchor"}}},
            }
        },
    }
    equal = plan(
        rows=rows,
        tune_normsoftmax=search("normsoftmax", 6),
        tune_proxy_anchor=search("proxy_anchor", 6),
    )
    assert equal.order[-1] == "rows" and advice.warnings(equal) == []
    assert equal.tuning() == {"rows": {"normsoftmax": 12, "proxy_anchor": 12}}
    assert equal.resolved_spec()["tuning"] == equal.tuning(), "a report can state it"
    arms = [p.arm for p in equal.spec.studies["rows"].listed]
    needs = [[a.best_of for a in equal.spec.studies["rows"].needs(arm)] for arm in arms]
    assert needs == [["tune_normsoftmax"], ["tune_proxy_anchor"]]
    other = plan(
        rows=rows,
        tune_normsoftmax=search("normsoftmax", 6),
        tune_proxy_anchor=search("proxy_anchor", 9),
    )
    assert advice.warnings(other) == [
        "rows compares rows tuned with different budgets: 12 trials for normsoftmax; "
        "18 trials for proxy_anchor; expected 18 for each: raise `trials` of tune_normsoftmax, or "
        "say `tuning: as_published` where its settings are printed ones"
    ]


def test_tuning_counts_studies_behind_studies_once() -> None:
    made = plan(
        tune=search("proxy_anchor", 5),
        grid={"design": "grid", "around": {"best_of": "tune"}, "grid": {"method.beta": [1, 2, 3]}},
        rows={
            "design": "compare",
            "variants": {
                "none": {},
                "tuned": {"around": {"best_of": "tune"}},
                "both": {"around": [{"best_of": "grid"}, {"best_of": "tune"}]},
            },
        },
    )
    assert made.tuning() == {"rows": {"none": 0, "tuned": 10, "both": 13}}
    assert len(advice.warnings(made)) == 1


def test_what_a_cell_sets_itself_is_not_left_to_results(tmp_path: Path) -> None:
    """The search decides the image size of what is centred on it, but where that sets its own."""
    sizes: dict[str, Any] = {
        "design": "search",
        "trials": 2,
        "trial": DDML,
        "space": {"data.image_size": {"choice": [32, 64]}},
    }
    around = {"around": {"best_of": "sizes"}}
    made = plan(
        sizes=sizes,
        own={"design": "grid", "grid": {"data.image_size": [96]}, **around},
        taken={"design": "grid", "grid": {"method.beta": [1]}, **around},
        up={"design": "promote", "of": "sizes", "best": 1, "trial": {"data.image_size": 128}},
    )
    with Ledger(tmp_path / "l.sqlite") as ledger:
        progression = Progression(made, Facts(ledger, None, retry_failed=False), record=False)
        known = {use.study: use.data for use in uses(made, progression)}
    assert known["taken"] is None
    assert known["own"] is not None and known["own"].image_size == 96
    assert known["up"] is not None and known["up"].image_size == 128


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
