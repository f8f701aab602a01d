"""The overhead benchmark finds every method of the registry a loss; a number without a bound; what
is kept of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import keep
from tests.benchmarks.bench_overhead import loss_for, trial
from tests.benchmarks.results import Result, table
from trainables.methods.base import METHODS


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_is_measured_on_a_loss_that_it_takes(method: str) -> None:
    assert trial(method, loss_for(method)).method.name == method  # type: ignore[attr-defined]


def test_a_number_without_a_bound_is_told_and_never_missed() -> None:
    told = Result("step", 3.0, "plain", 2.0, None, "ms")
    assert told.met
    assert table([told]).splitlines()[1].split() == ["step", "3", "ms", "plain", "2", "ms", "×1.50"]
    assert not Result("step", 3.0, "plain", 2.0, 2.5, "ms").met


def test_what_is_kept_says_when_where_and_by_how_much(tmp_path: Path) -> None:
    step, nothing = (
        Result("step", 3.0, "plain", 2.0, 2.5, "ms"),
        Result("", 1.0, "", 0.0, None, "s"),
    )
    keep(tmp_path / "runs" / "bench.json", {"overhead": [step, nothing]})
    kept = json.loads((tmp_path / "runs" / "bench.json").read_text())
    assert {"date", "processor", "cores", "load"} < kept.keys()
    first, second = kept["results"]["overhead"]
    assert (first["name"], first["ratio"], first["met"]) == ("step", 1.5, False)
    assert (second["ratio"], second["met"]) == (None, True)
