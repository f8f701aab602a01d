"""`evaluate: [train]`: the training classes are reported, and nothing is compared by them."""

from __future__ import annotations

from tests.ablate.specs import plan, spec

TABLE = {"kind": "compare", "study": "rows", "metrics": ["train/map_at_r", "train/density"]}
READ = {"studies__rows__evaluate": ["train"], "studies__rows__metrics": ["density"]}


def test_it_is_read_last_and_beside_what_the_objective_needs() -> None:
    planned = plan(spec(**READ, report={"tables": [TABLE]}))
    assert planned.list_evaluation_splits("rows") == ("val", "train")
    both = plan(spec(studies__rows__evaluate=["train", "test", "val"]))
    assert both.list_evaluation_splits("rows") == ("val", "test", "train")


def test_it_names_no_other_sweep_and_no_other_trial() -> None:
    before, now = plan(spec()), plan(spec(studies__rows__evaluate=["test", "train"]))
    assert now.sweep_id == before.sweep_id
