"""The compiled report: right numbers, missing shown as missing, files that stand alone."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ablate.ledger.ledger import Ledger
from reports.compile import Report, compile_report
from reports.frame import load_frame
from reports.recipe import Heatmap, Table
from reports.store import open_client
from reports.tables.build import build_table
from tests.reports.conftest import REPORT
from tests.reports.made import draw_part
from trainables.words.errors import ReportError


@pytest.fixture(scope="session")
def report(finished: Any, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    return compile_report(finished.uri, finished.sweep_id, folder, log_to_parent=False)


def facts(sweep: Any, study: str, cell: str, split: str, metric: str) -> dict[int, float]:
    """{seed: value} straight from the ledger."""
    with Ledger(sweep.ledger_path) as ledger:
        return {
            row["seed"]: values[split][metric]
            for row in ledger.list_cells(sweep.sweep_id)
            if (row["study"], row["cell"]) == (study, cell)
            and (values := ledger.get_evaluations(row["trial_id"]))
        }


def test_frame_has_every_cell_of_the_ledger(finished: Any, report: Report) -> None:
    cells = report.frame.cells.set_index(["study", "cell", "seed"])
    with Ledger(finished.ledger_path) as ledger:
        planned = ledger.list_cells(finished.sweep_id)
        assert len(cells) == len(planned)
        for row in planned:
            cell = cells.loc[(row["study"], row["cell"], row["seed"])]
            trial = ledger.get_trial(row["trial_id"])
            assert cell["status"] == (trial["status"] if trial else "missing")
            assert cell["coords"] == row["coords"]
            if cell["status"] == "done":
                values = ledger.get_evaluations(row["trial_id"])
                assert cell["test/recall_at_1"] == values["test"]["recall_at_1"]
            else:
                assert np.isnan(cell["test/recall_at_1"]) and cell["reason"]
    assert report.frame.study_order == ["tune", "table4", "tuned", "grid"]


def test_component_table_is_the_paper_s_and_right(finished: Any, report: Report) -> None:
    recipe = report.frame.recipe.tables[0]
    table = build_table(report.frame, recipe)
    assert table.headers == ("agnostic", "specific", "split")
    labels = ["".join(row.labels) for row in table.rows]
    assert labels == ["–––", "✓––", "–✓–", "––✓", "✓✓–", "✓–✓", "–✓✓", "✓✓✓"]
    printed = [row.measured["test/recall_at_1"].printed for row in table.rows]
    values = [64.7, 64.9, 64.8, 64.5, 65.1, 64.7, 65.0, 66.2]
    assert [entry and entry.value for entry in printed] == values
    base = facts(finished, "table4", table.rows[0].cell, "test", "recall_at_1")
    for row in table.rows:
        values = facts(finished, "table4", row.cell, "test", "recall_at_1")
        measured = row.measured["test/recall_at_1"]
        assert measured.summary is not None and len(row.run_ids) == 3
        assert measured.summary.mean == pytest.approx(np.mean(list(values.values())))
        assert measured.summary.sd == pytest.approx(np.std(list(values.values()), ddof=1))
        assert row.baseline == (row is table.rows[0]) == (measured.difference is None)
        if measured.difference is not None:
            gaps = [values[seed] - base[seed] for seed in base]
            assert measured.difference.mean == pytest.approx(np.mean(gaps))


def test_page_is_well_formed_and_asks_for_nothing(report: Report, finished: Any) -> None:
    text = report.html.read_text(encoding="utf-8")
    script = re.compile(r"<script>.*?</script>", re.DOTALL)
    root = ET.fromstring(script.sub("", text.replace("<!DOCTYPE html>", "")))
    for element in root.iter():
        for name in ("src", "href"):
            value = element.get(name)
            if value is not None:
                assert value.startswith(("#", "data:image/svg+xml,")), value
    assert "http" not in script.sub("", re.sub(r'data:image[^"]+', "", text))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    targets = {e.get("href", "")[1:] for e in root.iter("a") if e.get("href", "").startswith("#")}
    assert {target for target in targets if not target.startswith("/")} <= set(ids)
    for run in report.frame.trials["run_id"]:
        assert f"<td>{run}</td>" in text
    assert f'data-runs="#/experiments/{report.frame.parents[0].experiment_id}/runs/"' in text
    page_text = "".join(root.itertext())
    for words in ("term `split` is not finite", "c0ffee", "tpe, 6 trials", "best_tune.yaml"):
        assert words in page_text, words


def test_heatmap_means_and_hatching(finished: Any, report: Report) -> None:
    drawn = draw_part(
        report.frame, heatmaps=[Heatmap(study="grid", x="method.gamma", y="method.alpha")]
    )
    axes = drawn.figure.axes[0]
    image = np.asarray(axes.images[0].get_array())
    assert image.shape == (3, 3)
    for (i, alpha), (j, gamma) in itertools.product(
        enumerate([0.001, 0.01, 0.1]), enumerate([1e-7, 1e-5, 1e-3])
    ):
        cell = f"method.alpha={alpha},method.gamma={gamma}"
        values = facts(finished, "grid", cell, "val", "map_at_r").values()
        assert image[i, j] == pytest.approx(100 * np.mean(list(values)))
    assert "n = 1–2 seeds" in drawn.caption
    by_cell = {text.get_position(): text.get_text() for text in axes.texts}
    assert by_cell[0, 0].count("±") == 1 and "±" not in by_cell[2, 2]
    empty = draw_part(
        report.frame, heatmaps=[Heatmap(study="tune", x="optimizer.lr", y="method.alpha")]
    ).figure.axes[0]
    hatched = [patch for patch in empty.patches if patch.get_hatch()]
    assert len(hatched) == 36 - 5
    assert [text.get_text() for text in empty.texts].count("failed") == 1


def test_best_configuration_is_the_best_trial_s(finished: Any, report: Report) -> None:
    text = report.paths["best_tune.yaml"].read_text()
    spec = yaml.safe_load(text)
    cells = report.frame.select_study("tune")
    best = cells.loc[cells["val/map_at_r"].idxmax()]
    with Ledger(finished.ledger_path) as ledger:
        trial = ledger.get_trial(best["trial_id"])
    assert trial is not None and spec["trial"] == trial["config"]
    assert f"# weights, in the folder of runs: trials/{best['trial_id']}/best.safetensors" in text


def test_the_same_runs_give_the_same_bytes(report: Report, finished: Any, tmp_path: Path) -> None:
    again = compile_report(finished.uri, finished.sweep_id, tmp_path, log_to_parent=False)
    assert again.text == report.text
    assert {name: path.read_bytes() for name, path in again.paths.items()} == {
        name: path.read_bytes() for name, path in report.paths.items()
    }


def test_the_terminal_prints_every_note_that_a_table_names(report: Report) -> None:
    body, _, listed = report.text.partition("\nNotes\n")
    numbers = [int(number) for number in re.findall(r"^  (\d+)\. ", listed, re.MULTILINE)]
    assert len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1))
    named = re.findall(r"^  Notes? ([\d, ]+)\.$", body, re.MULTILINE)
    assert {int(number) for line in named for number in line.split(",")} == set(numbers)
    assert "d_z:" in report.paths["report.md"].read_text() and "d_z:" not in report.text


@pytest.mark.slow
def test_files_are_logged_to_the_parent_once(sweep: Any, tmp_path: Path) -> None:
    sweep.finish(sweep.plan(seeds=1)[:8])
    sweep.track()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path / "out")
    parent = report.frame.parents[0].run_id
    logged = sweep.folder / "mlartifacts" / parent / "artifacts" / "report"
    assert {path.name for path in logged.iterdir()} == set(report.paths)
    before = {path: path.stat().st_mtime_ns for path in logged.iterdir()}
    compile_report(sweep.uri, sweep.sweep_id, tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in logged.iterdir()} == before


def test_the_parent_is_described_by_the_verdict(sweep: Any, tmp_path: Path) -> None:
    """With the report a click away; what somebody wrote there stands."""
    sweep.finish(sweep.plan(report={"tables": REPORT["tables"][1:2]}, studies=("tuned",)))
    sweep.track()
    client = open_client(sweep.uri)

    def describe() -> str:
        compile_report(sweep.uri, sweep.sweep_id, tmp_path)
        return str(client.get_run(run.run_id).data.tags["mlflow.note.content"])

    run = load_frame(sweep.uri, sweep.sweep_id).parents[0]
    address = f"#/experiments/{run.experiment_id}/runs/{run.run_id}/artifacts/report/report.html"
    text = describe()
    assert text.startswith("## Verdict\n\n[The report]") and f"({address}?workflowType=" in text
    assert "**Does DDML beat NormSoftmax here?**" in text
    client.set_tag(run.run_id, "mlflow.note.content", "our own words")
    assert describe() == "our own words"


@pytest.mark.parametrize("finished_trials", [0, 12])
def test_an_incomplete_sweep_gives_a_report(
    sweep: Any, tmp_path: Path, finished_trials: int
) -> None:
    sweep.finish(sweep.plan(seeds=2)[:finished_trials])
    sweep.track()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path, log_to_parent=False)
    page = report.html.read_text()
    assert "missing" in report.text and "incomplete" in page
    assert ("Nothing has finished" in report.text) == (finished_trials == 0)
    badge = "validation-selected" if finished_trials else "nothing-finished"
    assert f'class="badge {badge}"' in page


def test_studies_that_have_not_begun_are_named_and_left_out(sweep: Any, tmp_path: Path) -> None:
    """As after `--study tuned`, or a budget of time that ended before the others."""
    recipe = {
        **REPORT,
        "curves": [{"studies": ["tuned", "table4"], "title": "Both"}],
        "factor_curves": [{"studies": ["grid"], "x": "method.gamma", "title": "gamma"}],
    }
    sweep.finish(sweep.plan(report=recipe, studies=("tuned",)))
    sweep.track()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path, log_to_parent=False)
    page, names = report.html.read_text(), {*report.paths}
    assert "Studies that have not begun are not shown: tune, table4, grid." in report.text
    assert "Studies not begun" in page and "tune, table4, grid" in page
    assert "missing" not in report.text and ">incomplete" not in page
    assert {name for name in names if name.endswith(".csv")} == {"table_tuned.csv"}
    pictures = {"curves_tuned_val_map_at_r.png", "forest.png"}
    assert {name for name in names if name.endswith(".png")} == pictures
    assert not any(name.startswith("best_") for name in names), "of `tune`, which it asks for"


@pytest.mark.slow
def test_two_machines_on_one_server_make_one_table(
    sweep: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    other = type(sweep)(tmp_path_factory.mktemp("other machine"))
    trials = sweep.plan(seeds=2)
    assert other.plan(seeds=2) == trials
    sweep.finish(trials[:20])
    other.finish(trials[15:])
    sweep.track()
    other.track(sweep.uri)
    frame = load_frame(sweep.uri, sweep.sweep_id)
    assert len(frame.parents) == 2
    assert set(frame.cells["status"]) == {"done"}
    assert len(frame.trials) == len(trials)


def test_a_wrong_recipe_is_answered_in_one_line(report: Report) -> None:
    printed = {"table": "ddml/table1", "column": "CUB", "rows": {"NormSoftmax": "NS"}}
    for wrong, words in (
        ({"study": "tunde"}, "tuned"),
        ({"baseline": "Softmax"}, "NormSoftmax"),
        ({"published": printed}, "CUB/R@1"),
    ):
        recipe = Table.model_validate({"kind": "compare", "study": "tuned", **wrong})
        with pytest.raises(ReportError, match=re.escape(words)) as error:
            build_table(report.frame, recipe)
        assert "\n" not in str(error.value)


def test_an_unknown_sweep_or_store_is_answered_in_one_line(finished: Any, tmp_path: Path) -> None:
    absent = f"sqlite:///{tmp_path}/no.db"
    for uri, sweep_id in [(finished.uri, "nothing"), (finished.uri, "f" * 32), (absent, "x")]:
        with pytest.raises(ReportError):
            load_frame(uri, sweep_id)
    assert not (tmp_path / "no.db").exists()


@pytest.mark.slow
def test_hostile_names_the_protocol_and_studies_that_stand_twice(
    sweep: Any, tmp_path: Path
) -> None:
    table = {"kind": "compare", "study": "tuned", "title": "<img src=x onerror=alert(1)>"}
    axes = {"x": "method.alpha", "y": "method.gamma"}
    turned = {"x": "method.gamma", "y": "method.alpha"}
    maps = [{"study": "grid", **entry} for entry in (axes, turned)]
    trials = sweep.plan(seeds=1, report={"tables": [table, table], "heatmaps": maps})
    sweep.fail(trials[0], "</td><script>alert(1)</script>")
    sweep.finish(trials[1:])
    with Ledger(sweep.ledger_path) as ledger, ledger.begin_transaction() as db:
        config = json.loads(db.execute("SELECT config_json FROM trials").fetchone()[0])
        config["data"]["split"]["protocol"] = "paper"
        db.execute("UPDATE trials SET config_json=?", [json.dumps(config)])
    sweep.track()
    report = compile_report(sweep.uri, sweep.sweep_id, tmp_path, log_to_parent=False)
    text = report.html.read_text()
    assert "<img src=x" not in text and "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "Measured: test-selected" in report.text
    assert 'class="badge test-selected"' in text
    names = ("table_tuned{}.csv", "heatmap_grid_val_map_at_r{}.png")
    assert {name.format(end) for name in names for end in ("", "_2")} <= set(report.paths)
    ids = re.findall(r' id="([^"]+)"', report.html.read_text())
    assert len(ids) == len(set(ids))
