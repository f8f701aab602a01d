"""A number beside what it is compared with; what is kept of a run; a loss for every method."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.__main__ import write_results
from tests.benchmarks.bench_steps import loss_for
from tests.benchmarks.results import Result, table
from trainables.methods.base import METHODS


def test_every_method_takes_a_loss() -> None:
    assert all(loss_for(method) for method in METHODS)


def test_a_number_without_a_bound_is_never_missed() -> None:
    step = Result("step", 3.0, "plain", 2.0, None, "ms")
    assert step.met
    assert table([step]).splitlines()[1].split() == ["step", "3", "ms", "plain", "2", "ms", "×1.50"]
    assert not Result("step", 3.0, "plain", 2.0, 2.5, "ms").met


def test_what_is_kept_says_when_where_and_by_how_much(tmp_path: Path) -> None:
    step = Result("step", 3.0, "plain", 2.0, 2.5, "ms")
    nothing = Result("", 1.0, "", 0.0, None, "s")
    write_results(tmp_path / "runs" / "bench.json", {"steps": [step, nothing]})
    kept = json.loads((tmp_path / "runs" / "bench.json").read_text())
    assert {"date", "processor", "cores", "load"} < kept.keys()
    first, second = kept["results"]["steps"]
    assert (first["name"], first["ratio"], first["met"]) == ("step", 1.5, False)
    assert (second["ratio"], second["met"]) == (None, True)
