"""`searches: K` repeats the tuning of a comparison at other seeds, and judges at the same ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from ablate.spec.read import read_spec
from tests.ablate import specs
from tests.ablate.driven import run, stopped_often, table
from tests.ablate.specs import SPACE
from trainables.words.errors import ConfigError

RATE = {"optimizer.lr": SPACE["optimizer.lr"]}
PLAIN = {"method": {"name": "plain"}}
SPEC: dict[str, Any] = {
    "name": "twice",
    "trial": {"training": {"epochs": 2}, "method": {"name": "ddml"}},
    "studies": {
        "tune_plain": {"design": "search", "trials": 4, "seeds": [100], "space": RATE}
        | {"trial": PLAIN},
        "tune_ddml": {"design": "search", "trials": 4, "seeds": [100], "points": [{}]}
        | {"around": {"best_of": "tune_plain", "box": 2}, "neutral": {"best_of": "tune_plain"}}
        | {"space": {"method.alpha": SPACE["method.alpha"]}},
        "best_plain": {"design": "promote", "of": "tune_plain", "best": 2, "seeds": [101, 102]},
        "best_ddml": {"design": "promote", "of": "tune_ddml", "best": 2, "seeds": [101, 102]},
        "judged": {"design": "compare", "seeds": [3, 4], "around": {"best_of": "best_{method}"}}
        | {"cross": {"method": {"plain": {"trial": PLAIN}, "ddml": {}}}},
        "alone": {"design": "search", "trials": 2, "seeds": [100], "space": RATE},
        "grid": {"design": "grid", "grid": {"method.beta": [0.1, 1]}},
    },
}


def build(searches: Any = 2, **changes: Any) -> Plan:
    """A plan of SPEC with so many searches, and with some keys of its studies changed."""
    changed = copy.deepcopy(SPEC) | ({} if searches is None else {"searches": searches})
    for name, keys in changes.items():
        changed["studies"][name] |= keys
    return specs.plan(changed)


def list_params(scheduler: Any, name: str) -> list[dict[str, Any]]:
    return [cell.coords for cell in scheduler.progression.studies[name].cells]


def test_a_search_repeats_what_a_comparison_builds_on_at_other_seeds() -> None:
    made = build(3)
    repeated = ["tune_plain", "tune_ddml", "best_plain", "best_ddml", "judged"]
    assert list(made.copies) == [f"{name}_search{k}" for k in (2, 3) for name in repeated]
    for copied, name in made.copies.items():
        ending = copied.removeprefix(name)
        studies = made.spec.studies
        shift = 0 if name == "judged" else 10_000 * (int(ending[-1]) - 1)
        assert made.list_seeds(copied) == [seed + shift for seed in made.list_seeds(name)]
        bases = [base + ending for base in studies[name].find_base_studies()]
        assert [*studies[copied].find_base_studies()] == bases
        unlike = {"seeds", "around", "of", "neutral"}
        assert studies[copied].model_dump(exclude=unlike) == studies[name].model_dump(
            exclude=unlike
        )


def test_budgets_are_those_of_one_search_and_a_selected_comparison_has_all() -> None:
    made, once = build(), build(None)
    assert made.count_tuning_trials() == once.count_tuning_trials()
    assert advice.list_plan_warnings(made) == advice.list_plan_warnings(once)
    assert made.resolve_spec()["searches"] == {"judged": ["judged_search2"]}
    chosen = specs.plan({**SPEC, "searches": 2}, studies=("judged",))
    assert {*chosen.order} == {*made.order} - {"alone", "grid"}


def test_one_search_is_the_spec_as_written() -> None:
    assert build(1).sweep_id == build(None).sweep_id != build(2).sweep_id
    assert build(1).order == build(None).order


def test_the_first_search_is_known_and_the_second_proposes_other_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = run(build(None), tmp_path)
    starts = tmp_path / "starts"
    monkeypatch.setenv("SYN_STARTS", str(starts))
    twice = run(build(2), tmp_path)
    assert list_params(twice, "tune_plain") == list_params(once, "tune_plain")
    known = {row["trial_id"] for row in table(once)}
    assert known < {row["trial_id"] for row in table(twice)}
    trained = [line.split()[0] for line in starts.read_text().splitlines()]
    assert known.isdisjoint(trained) and len(trained) == len({*trained})
    rates = [
        {p["optimizer.lr"] for p in list_params(twice, f"tune_plain{k}")} for k in ("", "_search2")
    ]
    assert len(rates[0]) == len(rates[1]) == 4 and rates[0].isdisjoint(rates[1])
    judged = [
        [c.config["optimizer"]["lr"] for c in twice.progression.studies[name].cells]
        for name in ("judged", "judged_search2")
    ]
    assert judged[0][0] in rates[0] and judged[1][0] in rates[1]


def test_stops_change_no_search_and_repeat_no_trial(tmp_path: Path) -> None:
    whole = run(build(2), tmp_path / "a")
    resumed, trained = stopped_often(build(2), tmp_path / "b", seed=1)
    assert table(resumed) == table(whole) and trained == whole.trained


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    *(
        ({"searches": bad}, "searches", word)
        for bad, word in ((0, "1"), (1.5, "1.5"), ("two", "two"))
    ),
    ({"judged": {"around": []}}, "searches", "no comparison takes"),
    ({"judged": {"seeds": {"at_most": 9}}}, "studies.judged.seeds", "List the seeds"),
    ({"judged": {"race": {"after": 3}}}, "studies.judged.race", "Remove `race`"),
    ({"judged": {"seeds": [10_100]}}, "searches", "10100, which judge"),
    ({"tune_ddml": {"warm_start": "first"}}, "studies.tune_ddml.warm_start", "the same trials"),
    ({"grid": {"around": {"best_of": "gird"}}}, "studies.grid.around.best_of", "'grid'?"),
]


@pytest.mark.parametrize(("changes", "place", "words"), REFUSED)
def test_one_line_for_what_does_not_go_with_searches(
    changes: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**changes)
    message = str(caught.value)
    assert caught.value.path.removeprefix("spec: ") == place and words in message, message
    assert "\n" not in message


def test_names_of_copies_are_free_and_seeds_of_the_command_tune_nothing() -> None:
    taken = copy.deepcopy(SPEC) | {"searches": 2}
    taken["studies"]["judged_search2"] = SPEC["studies"]["grid"]
    with pytest.raises(ConfigError, match=r"judged_search2: .* Rename"):
        read_spec(taken)
    assert read_spec({**taken, "searches": 1}).order
    many = {**SPEC, "searches": 2}
    assert specs.plan(many, seeds=3).list_seeds("judged_search2") == [0, 1, 2]
    many["studies"] = {**SPEC["studies"], "best_ddml": {**SPEC["studies"]["best_ddml"], "seeds": 2}}
    with pytest.raises(ConfigError, match=r"--seeds: .*best_ddml at equal seeds"):
        specs.plan(many, seeds=3)
