"""Tables of comparisons in which a method switched off may be the best of its tuning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reports.frame import OTHER, Frame
from reports.pages import markup
from reports.recipe import Table
from reports.tables.build import build, build_all
from reports.tables.model import Sheet, TableData
from tests.reports.made import METRIC, frame

ROWS = ["plain", "ddml", "nir", f"ddml{OTHER}", f"nir{OTHER}"]


def compared(won: list[str]) -> Frame:
    """`won`: the methods whose best is neutral; the other rows are one trial with theirs."""
    coords: list[dict[str, Any]] = [{"variant": name} for name in ROWS[:3]]
    coords += [{"variant": name, "neutral": "left out"} for name in ROWS[3:]]
    value = {name: 0.5 + 0.01 * i for i, name in enumerate(ROWS)}
    tuning = dict.fromkeys(ROWS, 14)
    made = frame(
        "compare", coords, lambda c, s: value[c["variant"]] + s / 1e3, names=ROWS, tuning=tuning
    )
    document = made.parents[0].document
    for cell in document["cells"]:
        name = cell["cell"].removesuffix(OTHER)
        if cell["cell"].endswith(OTHER) and name not in won:
            cell["trial_id"] = f"t{ROWS.index(name)}-{cell['seed']}"
    kept = {cell["trial_id"] for cell in document["cells"]}
    trials = made.trials[made.trials["trial_id"].isin(kept)]
    tags = []
    for trial_id in trials["trial_id"]:
        cells = [c for c in document["cells"] if c["trial_id"] == trial_id]
        keys = ("study", "cell", "coords", "idx")
        tags.append({"ablate.cells": json.dumps([{k: c[k] for k in keys} for c in cells])})
    return Frame(None, made.parents, trials.assign(tags=tags))


def table(made: Frame) -> TableData:
    found = build(made, Table(kind="compare", study="s", baseline="plain"))
    assert isinstance(found, TableData)
    return found


def test_no_row_stands_beside_another_that_it_is() -> None:
    made = table(compared([]))
    assert [row.labels for row in made.rows] == [("plain",), ("ddml",), ("nir",)]
    assert not any("neutral" in note for note in made.notes)


def test_the_row_says_that_its_best_is_neutral_and_the_best_other_stands_beside_it() -> None:
    made = table(compared(["ddml"]))
    assert [row.labels for row in made.rows] == [
        ("plain",),
        ("ddml (best is neutral)",),
        ("ddml, not neutral",),
        ("nir",),
    ]
    found = [row.measured[METRIC].summary for row in made.rows]
    assert [round(each.mean, 3) for each in found if each] == [0.501, 0.511, 0.531, 0.521]
    (note,) = [note for note in made.notes if "neutral" in note]
    assert note.startswith("ddml: best is neutral. No configuration tried was better")
    assert made.headers == ("variant",)
    text = markup.markdown(made)
    assert "ddml (best is neutral)" in text and "ddml, not neutral" in text


def test_both_rows_may_be() -> None:
    made = table(compared(["ddml", "nir"]))
    assert [row.cell for row in made.rows] == [
        "plain",
        "ddml",
        f"ddml{OTHER}",
        "nir",
        f"nir{OTHER}",
    ]


def test_crossed_rows_and_their_effects() -> None:
    """Such a row is no level of a factor."""
    coords = [{"method": m, "loss": loss} for m in ("plain", "ddml") for loss in ("pa", "ms")]
    names = [f"method={c['method']},loss={c['loss']}" for c in coords]
    coords.append({**coords[2], "neutral": "left out"})
    names.append(names[2] + OTHER)
    made = frame("compare", coords, lambda c, s: 0.5 + len(c) / 100 + s / 1e3, names=names)
    found = build(made, Table(kind="compare", study="s"))
    assert isinstance(found, TableData) and found.headers == ("method", "loss")
    assert [row.labels for row in found.rows][2:4] == [
        ("ddml (best is neutral)", "pa"),
        ("ddml, not neutral", "pa"),
    ]
    (effects,) = [
        each
        for each in build_all(made, _recipe({"kind": "compare", "study": "s"}))
        if isinstance(each, Sheet)
    ]
    assert "neutral" not in str(effects.rows)


def _recipe(*tables: dict[str, Any]) -> Any:
    from reports.recipe import Recipe

    return Recipe.model_validate({"tables": list(tables)})


@pytest.mark.parametrize("kind", ["search", "importance"])
def test_searches(kind: str) -> None:
    coords: list[dict[str, Any]] = [{"lr": 10 ** -(1 + i / 8)} for i in range(16)]
    coords.append({"neutral": "yes", "lr": 0.01})
    names = [f"{i:04d}" for i in range(16)] + ["neutral"]
    space = {"lr": {"low": 1e-3, "high": 1e-1, "log": True, "choice": None}}
    study = {"space": space}
    made = frame("search", coords, lambda c, s: 0.5 + c["lr"], names=names, study=study)
    found = build(made, Table(kind=kind, study="s", top=17))
    if isinstance(found, TableData):
        assert found.headers == ("trial", "lr")
        assert "neutral" in [row.labels[0] for row in found.rows]
        assert any(note.startswith("neutral: the method switched off") for note in found.notes)
    else:
        assert [number[4] for number in found.numbers] == [16], "it is no draw from the space"
