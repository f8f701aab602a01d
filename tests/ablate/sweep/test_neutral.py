"""The neutral cell at the baseline's best rates: one candidate more, and its rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ablate.designs.parts import NEUTRAL_POINT
from ablate.plan.inheritance import get_neutral_options, is_neutral
from ablate.plan.plan import Plan
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, run, stopped_often, table
from trainables.methods.base import METHODS
from trainables.words.errors import ConfigError

RATE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
AWAY = {"method.alpha": {"low": 2, "high": 3}}  # far from the synthetic best, 0.7: neutral wins
NEAR = {"method.alpha": {"low": 0.65, "high": 0.75}}
WHOLE = {"method.alpha": {"low": 0, "high": 1}}  # holds 0
NEUTRAL = {"neutral": {"best_of": "a"}}


def search(method: str, space: dict[str, Any] = RATE, **more: Any) -> dict[str, Any]:
    trial = {"method": {"name": method}}
    if method == "ddml":
        trial["method"] |= {"beta": 0.0, "gamma": 0.0}  # type: ignore[dict-item]
    study = {"design": "search", "trials": 6, "round": 3, "startup": 3, "seeds": 2}
    return {**study, "trial": trial, "space": space, **more}


def rows(plain: str = "a", ddml: str = "b", **more: Any) -> dict[str, Any]:
    return {
        "design": "compare",
        "variants": {
            "plain": {"trial": {"method": {"name": "plain"}}, "around": {"best_of": plain}},
            "ddml": {"trial": {"method": {"name": "ddml"}}, "around": {"best_of": ddml, **more}},
        },
    }


def plan(space: dict[str, Any] = AWAY, rest: dict[str, Any] | None = None, **more: Any) -> Plan:
    b = search("ddml", RATE | space, **NEUTRAL, **more)
    studies = {"a": search("plain"), "b": b, "rows": rows(), **(rest or {})}
    return specs.plan({"name": "neutral", "trial": {"training.epochs": 2}, "studies": studies})


def cells(made: JobQueue, study: str) -> dict[str, Any]:
    return {cell.cell: cell for cell in made.progression.studies[study].cells if cell.seed == 0}


# ------------------------------------------------------------------------ the cell


def test_it_is_the_method_switched_off_at_the_best_rates_of_its_baseline(tmp_path: Path) -> None:
    made = run(plan(), tmp_path)
    best = made.progression.ranking.rank_study("a")[0]
    neutral = cells(made, "b")["neutral"]
    assert best.values.keys() == {"optimizer.lr"}
    assert neutral.config["optimizer"]["lr"] == best.values["optimizer.lr"]
    assert neutral.config["method"]["name"] == "ddml" and is_neutral(neutral.config)
    assert neutral.config["method"]["alpha"] == 0
    assert neutral.coords == {"neutral": "yes", "optimizer.lr": best.values["optimizer.lr"]} | {
        "method.alpha": 0
    }
    assert (
        len(made.progression.studies["b"].cells) == made.progression.plan.count_cells("b") == 7 * 2
    )
    assert made.progression.studies["b"].complete
    assert all(row["status"] == "done" for row in table(made))


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"plain"}))
def test_every_method_has_one(method: str) -> None:
    study = search(method, RATE, trial={"method": {"name": method}}, **NEUTRAL)
    made = specs.plan({"name": "any", "studies": {"a": search("plain"), "b": study}})
    point = made.spec.studies["b"].find_baseline()
    assert point is not None
    (cell, _) = made.build_cells("b", NEUTRAL_POINT, 6, [{"optimizer.lr": 2e-3}])
    assert cell.error is None and is_neutral(cell.config) and get_neutral_options(method)
    assert cell.config["optimizer"]["lr"] == 2e-3
    assert not is_neutral(made.resolve_config("b", None).model_dump(mode="json"))


def test_the_plain_method_has_none() -> None:
    studies = {"a": search("plain"), "b": search("plain", **NEUTRAL)}
    with pytest.raises(ConfigError, match=r"studies\.b\.neutral: the method 'plain' has no terms"):
        specs.plan({"name": "none", "studies": studies})
    assert not is_neutral({"method": {"name": "plain"}})


@pytest.mark.parametrize("baseline", ["ddml", "ddml, not neutral", {"variant": "plain"}])
def test_a_table_may_name_each_row_as_its_baseline(baseline: object) -> None:
    studies = {"a": search("plain"), "b": search("ddml", **NEUTRAL), "rows": rows()}
    spec = {"name": "rows", "studies": studies}
    report = {"tables": [{"kind": "compare", "study": "rows", "baseline": baseline}]}
    assert specs.plan({**spec, "report": report}).order


# ------------------------------------------------------------------- ranked with them


def test_where_it_wins_the_best_other_cell_stands_beside_it(tmp_path: Path) -> None:
    made = run(plan(AWAY), tmp_path)
    ranking = made.progression.ranking.rank_study("b")
    assert ranking[0].cell.cell == "neutral"
    told = cells(made, "rows")
    assert list(told) == ["plain", "ddml", "ddml, not neutral"]
    assert is_neutral(told["ddml"].config)
    assert told["ddml"].config["optimizer"] == told["plain"].config["optimizer"]
    other = told["ddml, not neutral"]
    assert other.config["method"]["alpha"] == ranking[1].values["method.alpha"] >= 2
    assert other.trial_id != told["ddml"].trial_id
    assert other.coords == {"variant": "ddml, not neutral", "neutral": "left out"}


# ------------------------------------------------------------------------- promoted


def test_it_is_promoted_as_any_other_and_has_a_neutral_one_of_its_own(tmp_path: Path) -> None:
    """Ranked among the finalists too: at the best rates of the baseline's finalists."""
    more = {"training.epochs": 3}
    rest = {
        "a2": {
            "design": "promote",
            "of": "a",
            "best": 2,
            "seeds": [4],
            "trial": {"method": {"name": "plain"}, **more},
        },
        "b2": {
            "design": "promote",
            "of": "b",
            "best": 3,
            "seeds": [4],
            "trial": {"method": {"name": "ddml"}, **more},
            "neutral": {"best_of": "a2"},
        },
        "rows": rows("a2", "b2"),
    }
    made = run(plan(AWAY, rest), tmp_path)
    promoted = {c.cell: c for c in made.progression.studies["b2"].cells}
    assert list(promoted) == ["rank=1", "rank=2", "rank=3", "neutral"]
    assert promoted["rank=1"].coords["source"] == "neutral" and is_neutral(
        promoted["rank=1"].config
    )
    own, best = promoted["neutral"], made.progression.ranking.rank_study("a2")[0]
    assert is_neutral(own.config)
    assert own.config["optimizer"]["lr"] == best.cell.config["optimizer"]["lr"]
    assert own.config["training"]["epochs"] == 3
    told = cells(made, "rows")
    assert is_neutral(told["ddml"].config) and not is_neutral(told["ddml, not neutral"].config)
    assert made.progression.plan.trace_lineages()["rows"] == {
        "plain": {"a2": 2, "a": 12, "b2's neutral cell": 1, "b's neutral cell": 2},
        "ddml": {"b2": 4, "b": 14},
        "ddml, not neutral": {"b2": 4, "b": 14},
    }


@pytest.mark.parametrize("race", [{}, {"race": {"after": 2}, "seeds": 3}])
@pytest.mark.parametrize("last", ["base", "heads"])
def test_a_short_promotion_waits_for_its_neutral_cell(
    last: str, race: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer cells than are wanted succeed, and the baseline may end before or after them."""
    monkeypatch.setenv("SYN_FAIL", "1.5e-3")
    plain, ddml = ({"method": {"name": name}} for name in ("plain", "ddml"))
    grid = {"design": "grid", "grid": {"optimizer.lr": [2e-4, 4e-4, 1e-3, 3e-3]}}
    studies = {
        "base": {"design": "grid", "grid": {"optimizer.lr": [1e-3, 9e-4]}, "trial": plain},
        "heads": {**grid, "trial": ddml},
        "best": {
            **{"design": "promote", "of": "heads", "best": 4, "neutral": {"best_of": "base"}},
            **{"trial": {**ddml, "training.epochs": 3}, **race},
        },
        "next": {"design": "promote", "of": "best", "best": 1, "trial": {"training.epochs": 4}},
    }
    made = dispatch(specs.plan({"name": "short", "studies": studies}), tmp_path)
    late = {cell.trial_id for cell in made.progression.studies[last].cells}
    drain(made, at_once=20, choose=lambda running: min(running, key=lambda t: (t in late, t)))
    state = made.progression.studies["best"]
    names = dict.fromkeys(cell.cell for cell in state.cells)
    assert list(names) == ["rank=1", "rank=2", "rank=3", "neutral"]
    assert (
        state.complete and state.blocked is not None and made.progression.studies["next"].complete
    )
    assert drain(dispatch(made.progression.plan, tmp_path)) == []


# -------------------------------------------------------------------- told or not


def test_it_is_told_only_where_the_space_holds_it(tmp_path: Path) -> None:
    keys = {}
    for name, space in (("away", AWAY), ("whole", WHOLE)):
        made = run(plan(space), tmp_path / name)
        bare = run(plan(space, {"b": search("ddml", RATE | space)}), tmp_path / f"{name} bare")
        own, other = made.progression.proposers["b"], bare.progression.proposers["b"]
        keys[name] = own.key == other.key
        ours = [row["params"] for row in made.ledger.list_proposals(own.key).values()]
        theirs = [row["params"] for row in bare.ledger.list_proposals(other.key).values()]
        assert (ours == theirs) == (name == "away")
        assert len(own.list_history({})) == len(ours) + (name == "whole")
    assert keys == {"away": True, "whole": False}, "known proposals are taken where they can be"


SLOW = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("nsga2", "gp", "quasi_random", "random")
]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", *SLOW])
def test_it_goes_on_the_same_however_often_it_is_stopped(sampler: str, tmp_path: Path) -> None:
    small = {"population": 4} if sampler in ("cmaes", "nsga2") else {}
    made_plan = plan(WHOLE, sampler=sampler, **small)
    once = run(made_plan, tmp_path / "once")
    made, _ = stopped_often(made_plan, tmp_path / "again", seed=1)
    assert table(made) == table(once)


def test_an_asynchronous_search_begins_once_it_is_known(tmp_path: Path) -> None:
    made_plan = plan(WHOLE, round="asynchronous")
    made = run(made_plan, tmp_path, at_once=3, choose=random.Random(2).choice)
    state = made.progression.studies["b"]
    assert state.complete and len(state.cells) == 7 * 2
    earlier = made.progression.proposers["b"].list_history({})
    assert len(earlier) == 7 and not any(each.running for each in earlier)
    for row in made.ledger.list_proposals(made.progression.proposers["b"].key).values():
        assert all(0 <= idx < row["idx"] for idx in row["beside"] or ())


# --------------------------------------------------------------------- the space


# --------------------------------------------------------------------- identity
