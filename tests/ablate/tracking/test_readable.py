"""MLflow's own pages: descriptions, the best of each study, data sets."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest

from ablate.ledger.ledger import Ledger
from ablate.results import find_best, read_frame
from ablate.tracking import payload
from ablate.tracking.store import open_store
from tests.ablate.tracking.store import children, parent_run

NOTE = "mlflow.note.content"


def find_tagged(sweep: Any, condition: str) -> set[str]:
    client = open_store(sweep.uri)
    experiment = client.get_experiment_by_name("ddml").experiment_id
    runs = client.search_runs([experiment], condition, max_results=1000)
    return {run.data.tags["ablate.trial_id"] for run in runs}


def find_best_trials(sweep: Any, study: str) -> set[str]:
    with Ledger(sweep.ledger_path) as ledger:
        return set(find_best(read_frame(ledger, sweep.sweep_id), study, sweep.folder).trials)


@pytest.mark.slow
def test_pages_name_studies_the_best_and_the_data(finished: Any) -> None:
    client, parent = open_store(finished.uri), parent_run(finished)
    note = client.get_experiment(parent.info.experiment_id).tags[NOTE]
    links = re.findall(r"\((#/experiments/[^)]*)\)", note)
    assert len(links) == 2 and "compareRunsMode=CHART" in links[1]
    for link in links:  # each leads to the best trials of this experiment
        experiment, query = link.removeprefix("#/experiments/").split("/runs?")
        options = dict(part.split("=", 1) for part in query.split("&"))
        assert experiment == parent.info.experiment_id
        best = find_tagged(finished, unquote(options["searchFilter"]))
    studies = ["tune", "table4", "tuned", "grid"]
    assert best == set.union(*(find_best_trials(finished, study) for study in studies))
    for study in studies:
        condition = f"tags.best_of LIKE '%({study})%'"
        assert find_tagged(finished, condition) == find_best_trials(finished, study)
    with Ledger(finished.ledger_path) as ledger:
        for trial_id, run in children(finished).items():
            cells = ledger.list_cells(finished.sweep_id, trial_id)
            assert all(f"cell `{cell['cell']}`" in run.data.tags[NOTE] for cell in cells)
            trial = ledger.get_trial(trial_id)
            names = [each.dataset.name for each in run.inputs.dataset_inputs]
            assert names == (["typefaces"] if trial["status"] == "done" else [])


def test_the_best_moves_and_a_user_s_notes_stay(sweep: Any) -> None:
    trials = sweep.plan(seeds=1, studies=("tune",))
    sweep.finish(trials[:1])
    sweep.track()
    client, run = open_store(sweep.uri), children(sweep)[trials[0]]
    parent = parent_run(sweep)
    assert run.data.tags["best_of"] == "(tune)"
    client.set_tag(run.info.run_id, NOTE, "mine")
    client.set_experiment_tag(parent.info.experiment_id, NOTE, "mine")
    sweep.finish(trials[1:])
    sweep.track()
    (best,) = find_best_trials(sweep, "tune")
    assert best != trials[0] and find_tagged(sweep, payload.BEST_FILTER) == {best}
    assert children(sweep)[trials[0]].data.tags[NOTE] == "mine"
    assert client.get_experiment(parent.info.experiment_id).tags[NOTE] == "mine"
