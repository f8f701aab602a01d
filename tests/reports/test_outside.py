"""A table, a figure and a metric that are not ours: one file each and an entry point."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).parent / "outside"
ENTRIES = {
    "tables": "seed_range = seed_range:seed_range",
    "figures": "dots = dots:dots",
    "metrics": "farthest = farthest:farthest",
}
SPEC: dict[str, Any] = {
    "name": "outside",
    "studies": {
        "s": {"design": "grid", "grid": {"embedding.dim": [8, 16]}, "metrics": ["farthest"]}
    },
    "report": {
        "tables": [{"kind": "seed_range", "study": "s", "metrics": ["val/farthest"]}],
        "figures": [{"kind": "dots", "studies": ["s"], "metric": "val/farthest"}],
    },
}
FAULTS: dict[str, dict[str, Any]] = {
    "table": {"tables": [{"kind": "seed_rang", "study": "s"}]},
    "figure": {"figures": [{"kind": "dot", "studies": ["s"]}]},
    "metric": {"figures": [{"kind": "dots", "studies": ["s"], "metric": "val/nearest"}]},
}

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from ablate.spec.model import build_json_schema
from reports.kinds import FIGURES
from reports.recipe import Figure, Table
from reports.tables.build import build_table
from reports.pages import markup, table_files
from tests.ablate import specs
from tests.reports import made
from trainables.words.errors import ConfigError
from trainables.evaluation.metrics import ALL, EVALUATOR, evaluate_embeddings

spec, faults = json.loads(sys.argv[1])
specs.plan(spec)
refused = {}
for name, report in faults.items():
    try:
        specs.plan({**spec, "report": report})
    except ConfigError as error:
        refused[name] = str(error)
frame = made.frame("grid", [{"x": 1}, {"x": 2}], lambda at, seed: at["x"] + seed / 10)
table = build_table(frame, Table(kind="seed_range", study="s"))
figure = FIGURES["dots"](frame, Figure(kind="dots", studies=("s",), title="Dots"))
rows = torch.tensor([[1.0, 0], [0.6, 0.8], [-1, 0], [-1, 0]])
metrics = ["farthest", "recall_at_1"]
print(json.dumps({
    "csv": table_files.to_csv(table),
    "texts": [markup.format_plain_table(table), table_files.format_latex(table)],
    "figure": {kind: path.stat().st_size for kind, path in figure.save_files(Path(".")).items()},
    "evaluator": EVALUATOR, "all": ALL, "refused": refused,
    "values": evaluate_embeddings(
        rows, torch.tensor([5, 5, 7, 7]), score="cosine", metrics=metrics,
    ),
    "kinds": build_json_schema()["$defs"]["Table"]["properties"]["kind"]["enum"],
}))
"""


def run(folder: Path, script: str, *arguments: str) -> Any:
    """What a process says that finds the entries installed as any package is."""
    package = folder / "site" / "more_readings-0.1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: more-readings\nVersion: 0.1\n")
    (package / "entry_points.txt").write_text(
        "\n".join(f"[ablate.{group}]\n{line}\n" for group, line in ENTRIES.items())
    )
    paths = os.pathsep.join(map(str, [folder / "site", folder, FILES, ROOT]))
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("outside")
    done = run(folder, SCRIPT, json.dumps([SPEC, FAULTS]))
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


@pytest.mark.slow
def test_the_table_and_the_figure_are_written_as_ours_are(answer: dict[str, Any]) -> None:
    assert answer["csv"].splitlines() == ["cell,least,most", "x=1,1.0,1.2", "x=2,2.0,2.2"]
    assert all("Range over seeds" in text for text in answer["texts"])
    assert "seed_range" in answer["kinds"] and "compare" in answer["kinds"]
    assert set(answer["figure"]) == {"png", "svg"} and min(answer["figure"].values()) > 1000


@pytest.mark.slow
def test_the_metric_is_evaluated_and_its_text_is_part_of_the_evaluator(
    answer: dict[str, Any], tmp_path: Path
) -> None:
    assert answer["values"]["farthest"] == pytest.approx(0.2**0.5)
    assert answer["values"]["recall_at_1"] == 1
    assert "farthest" in answer["all"]
    assert re.fullmatch(r"retrieval-\d+\+farthest\.[0-9a-f]{8}", answer["evaluator"])
    (tmp_path / "farthest.py").write_text((FILES / "farthest.py").read_text() + "\nMORE = 1\n")
    script = "from trainables.evaluation.metrics import EVALUATOR; print(EVALUATOR)"
    edited = run(tmp_path, script)
    assert edited.returncode == 0, edited.stderr
    assert edited.stdout.strip() != answer["evaluator"]
    assert edited.stdout.startswith(answer["evaluator"].partition(".")[0])


def test_faults_are_one_line_each(answer: dict[str, Any]) -> None:
    refused = answer["refused"]
    assert set(refused) == set(FAULTS)
    assert "report.tables.0.kind" in refused["table"] and "seed_range" in refused["table"]
    assert "report.figures.0.kind" in refused["figure"] and ", dots" in refused["figure"]
    assert "report.figures.0.metric" in refused["metric"]
    assert not [text for text in refused.values() if "\n" in text]
