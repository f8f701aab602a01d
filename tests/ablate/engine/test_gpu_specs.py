"""Files for a GPU (`gpu/`, `papers/*_fair.yaml`): their headers, budgets, and runs in miniature."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.plan import warnings as advice
from ablate.spec.read import read_spec
from tests.ablate.engine.miniature import FEW, SMALL
from tests.papers import sources
from tests.trainables.data import trees
from trainables.words.paths import flatten_paths

SPACES = Path(__file__).parents[3] / "search_spaces"
GPU = sorted((SPACES / "gpu").glob("*.yaml"))
FAIR = sorted((SPACES / "papers").glob("*_fair.yaml"))
TRAINED = [spec for spec in (*GPU, *FAIR) if spec.stem != "few_images"]  # cub200 extends that
each_spec = pytest.mark.parametrize("spec", [*GPU, *FAIR], ids=lambda path: path.stem)

# file → comparison of the paper's own file, and search → the row whose settings it has
PUBLISHED = {
    "ddml": ("table1_cub_proxy_anchor", {"rates": "PA", "tune_ddml": "DDML(+PA)"}),
    "detreg": ("table1_cub", {"tune_detreg": "Ours 512"}),  # both rows have DetReg's recipe
    "dvml": ("table3_cub", {"rates": "N-pair", "tune_dvml": "DVML+N-pair"}),
    "idml": ("table1_cub", {"rates": "ProxyAnchor", "tune_idml": "IDML-PA"}),
    "nir": ("table1_cub", {"rates": "ProxyAnchor", "tune_nir": "ProxyAnchor + NIR"}),
}

# search of a fair file → options in which it deviates from the paper's file, as its header says
DEVIATIONS = {
    "tune_ddml": {"method.weights", "method.alpha"},
    "tune_detreg": {"method.weights", "method.input", "method.lambda1", "method.lambda2"},
    "tune_dvml": {"method.weights"}
    | {f"method.lambda{term}" for term in ("1_phase1", "1_phase2", "2_phase2", "3_phase1")}
    | {"method.lambda3_phase2"},
    "tune_nir": {"method.scale", "method.omega"}
    | {f"schedule.warmup_{option}" for option in ("epochs", "steps", "hold")},
}
EPOCHS = {"dvml": {"selection.keep"}}


@each_spec
def test_a_header_states_the_plan(spec: Path) -> None:
    plan = sources.plan(spec)
    header = " ".join(line[1:].strip() for line in spec.read_text().split("\nname:")[0].split("\n"))
    stated = re.search(r"- (?:\*\*What it costs\.\*\* )?(\d+) trials at most", header)
    assert stated and int(stated[1]) == sum(map(plan.count_cells, plan.order))
    (detects,) = advice.describe_precision(plan, "judged")
    amount = re.search(r"differences of (\d\.\d standard deviations of a \w+)", detects)
    assert amount and f"detects {amount[1]}" in header
    assert advice.list_plan_warnings(plan) == []
    # the plain loss's trials are behind every method, and methods have equally many more
    plain, *methods = sorted(plan.count_tuning_trials()["judged"].values())
    assert 20 < plain < methods[0] == methods[-1]


@pytest.mark.parametrize("spec", FAIR, ids=lambda path: path.stem)
def test_rows_start_from_the_papers_settings(spec: Path) -> None:
    fair, name = sources.plan(spec), spec.stem.removesuffix("_fair")
    paper = sources.plan(spec.with_name(f"{name}.yaml"))
    table, searches = PUBLISHED[name]
    for search, cell in searches.items():
        (printed,) = (p for p in paper.spec.studies[table].all_points if p.cell == cell)
        before = flatten_paths(paper.resolve_config(table, printed).model_dump())
        after = flatten_paths(fair.resolve_config(search, None).model_dump())
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        deviations = DEVIATIONS.get(search, set()) | EPOCHS.get(name, set())
        assert changed == {"data.split.protocol", "selection.metric"} | deviations
        assert after["data.split.protocol"] == "held_out"


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("spec", TRAINED, ids=lambda path: path.stem)
def test_it_runs_in_miniature(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.cub200(tmp_path / "CUB_200_2011")
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    studies = {
        name: dict(FEW[study.design]) for name, study in read_spec(spec).spec.studies.items()
    }
    if spec in GPU and spec.stem != "cub200":
        studies["judged"]["splits"] = 2
    overlay = {"extends": str(spec), "resources": {"cpus": 1, "gpus": 0}, "studies": studies}
    small = tmp_path / "small.yaml"
    small.write_text(json.dumps(overlay))
    settings = SMALL | ({"data.split.images_per_class": 2} if spec in GPU else {})
    if spec.stem == "networks":  # its classes are many
        settings |= {"data.image_size": 16, "training.batch_size": 64}
    options = [part for path, value in settings.items() for part in ("--set", f"{path}={value}")]
    options += ["--allow-partial", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(["run", str(small), "--plan", *options]) == 0
    assert main(["run", str(small), *options]) == 0
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT trial_id, status FROM trials")
        assert {row["status"] for row in rows} == {"done"}
        tested = [
            found for row in rows if "test" in (found := ledger.get_evaluations(row["trial_id"]))
        ]
    assert tested and all({"map_at_r", "recall_at_1"} <= found["test"].keys() for found in tested)
    (report,) = tmp_path.glob("runs/reports/*/report.md")
    text = report.read_text(encoding="utf-8")
    assert all(str(table.title) in text for table in read_spec(spec).spec.report.tables)
