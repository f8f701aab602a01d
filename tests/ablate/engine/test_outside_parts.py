"""A design, a scheduler and a sampler that are not ours: one file each and an entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = Path(__file__).parents[1] / "outside"
GROUPS = {"designs": "doubling", "schedulers": "one_goes_on", "samplers": "halton"}

SPACE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2}, "method.alpha": {"low": 0, "high": 1}}
SPEC: dict[str, Any] = {
    "name": "outside",
    "trial": {"training": {"epochs": 4}, "method": {"name": "ddml"}},
    "studies": {
        "tune": {
            "design": "search",
            "trials": 4,
            "round": 4,
            "sampler": "halton",
            "scheduler": {"name": "one_goes_on", "grace": 2},
            "space": SPACE,
        },
        "wide": {
            "design": "doubling",
            "path": "embedding.dim",
            "first": 8,
            "count": 3,
            "around": {"best_of": "tune"},
        },
        "best": {"design": "promote", "of": "wide", "best": 1, "trial": {"training.epochs": 6}},
    },
    "report": {"tables": [{"kind": "compare", "study": "wide"}]},
}

# Drives a sweep without Ray, then says what becomes of faults and what the schema lists.
SCRIPT = """
import json, sys
from pathlib import Path
from ablate.plan.warnings import list_study_notes
from ablate.spec.model import build_json_schema
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table
from trainables.words.errors import ConfigError

given, faults = json.loads(sys.argv[1])
made = dispatch(specs.plan(given), Path("run"))
drain(made, 2)
refused = []
for fault in faults:
    try:
        specs.plan(fault)
    except ConfigError as error:
        refused.append(str(error))
defs = build_json_schema()["$defs"]
print(json.dumps({
    "rows": table(made),
    "notes": list_study_notes(made.progression.plan, "wide"), "refused": refused,
    "schema": [name in defs for name in ("Doubling", "OneGoesOn")],
    "samplers": defs["Search"]["properties"]["sampler"]["anyOf"][0]["enum"],
}))
"""


def changed(study: str, **values: Any) -> dict[str, Any]:
    studies: dict[str, Any] = SPEC["studies"]
    return {**SPEC, "studies": {**studies, study: {**studies[study], **values}}}


FAULTS = {
    "an unknown option": changed("wide", frist=8),
    "an unknown design": changed("wide", design="doublin"),
    "too many axes": changed(
        "tune", space={f"optimizer.{n}": {"low": 0.1, "high": 0.2} for n in "abcde"}
    ),
    "rounds that it needs": changed("tune", round="asynchronous"),
}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer of a process that finds the three installed as any package is."""
    folder = tmp_path_factory.mktemp("outside")
    package = folder / "site" / "more_parts-0.1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: more-parts\nVersion: 0.1\n")
    (package / "entry_points.txt").write_text(
        "\n".join(f"[ablate.{group}]\n{name} = {name}\n" for group, name in GROUPS.items())
    )
    paths = os.pathsep.join(map(str, [folder / "site", FILES, ROOT]))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([SPEC, list(FAULTS.values())])],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    output: dict[str, Any] = json.loads(done.stdout)
    return output


@pytest.mark.slow
def test_they_run_through_a_sweep(answer: dict[str, Any]) -> None:
    rows = {name: [r for r in answer["rows"] if r["study"] == name] for name in SPEC["studies"]}
    rates = [row["coords/optimizer.lr"] for row in rows["tune"]]
    assert rates == pytest.approx([1e-4 + part * 9.9e-3 for part in (1 / 2, 1 / 4, 3 / 4, 1 / 8)])
    assert [row["status"] for row in rows["tune"]].count("done") == 1, "one goes on"
    assert [row["coords/embedding.dim"] for row in rows["wide"]] == [8, 16, 32]
    assert {row["status"] for row in rows["wide"]} == {"done"}
    (promoted,) = rows["best"]
    assert promoted["coords/source"] == "embedding.dim=32.0", "what it gives is taken and promoted"
    assert answer["notes"][0] == "up to 32", "the design's own note"


def test_their_options_are_checked_like_ours(answer: dict[str, Any]) -> None:
    refused = dict(zip(FAULTS, answer["refused"], strict=True))
    words = {
        "an unknown option": ["studies.wide.frist", "Did you mean 'first'?"],
        "an unknown design": ["studies.wide.design", "search, grid", "'doubling'?"],
        "too many axes": ["studies.tune.space", "at most 4 axes"],
        "rounds that it needs": ["studies.tune.round", "one_goes_on", "asha or median"],
    }
    for fault, expected in words.items():
        assert not [word for word in expected if word not in refused[fault]], refused[fault]
        assert "\n" not in refused[fault]


def test_the_schema_lists_them(answer: dict[str, Any]) -> None:
    assert answer["schema"] == [True, True]
    assert answer["samplers"][-1] == "halton" and answer["samplers"][0] == "tpe", "ours come first"
