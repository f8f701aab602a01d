"""Two sweeps side by side: the same cells, their differences by seed, and what made them differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy import stats as scipy_stats

from ablate.cli.main import main
from reports.frame import Frame
from reports.sweeps.compare import (
    BEST,
    SweepComparison,
    build_sheets,
    format_comparison,
    match_sweeps,
    summarize_comparison,
)
from tests.reports.made import frame

ROWS = [{"variant": name} for name in ("plain", "ddml", "nir")]
SEEDS = 8


def made(
    gain: float = 0.0, *, rows: list[dict[str, Any]] = ROWS, seeds: int = SEEDS, tag: str = ""
) -> Frame:
    """`gain` is what ddml has more; tag: a part of its trials' ids, of another configuration."""

    def value(at: dict[str, Any], seed: int) -> float:
        own = gain + 0.001 * (seed % 3) if at["variant"] == "ddml" and gain else 0.0
        return 0.5 + 0.01 * (seed % 4) + own

    def params(at: dict[str, Any]) -> dict[str, str]:
        return {"method.name": at["variant"], "optimizer.lr": "0.01" if tag else "0.001"}

    found = frame("compare", rows, value, seeds=seeds, params=params)
    if not tag:
        return found
    trials = found.trials.assign(trial_id=tag + found.trials["trial_id"])
    for cell in found.document["cells"]:
        cell["trial_id"] = tag + cell["trial_id"]
    return Frame(None, found.parents, trials)


def calls(matched: SweepComparison) -> dict[str, str]:
    (study,) = matched.studies
    return {pair.cell.removeprefix("variant="): pair.describe_call() for pair in study.pairs}


def test_a_cell_s_difference_is_paired_by_seed() -> None:
    matched = match_sweeps(made(), made(0.05, tag="x"))
    assert calls(matched) == {"plain": "equal", "ddml": "better", "nir": "equal"}
    pair = matched.studies[0].pairs[1]
    gaps = [0.05 + 0.001 * (seed % 3) for seed in range(SEEDS)]
    low, high = scipy_stats.t.interval(0.95, SEEDS - 1, sum(gaps) / SEEDS, scipy_stats.sem(gaps))
    assert pair.difference is not None and pair.difference.n == SEEDS
    assert pair.difference.mean == pytest.approx(sum(gaps) / SEEDS)
    assert (pair.difference.low, pair.difference.high) == pytest.approx((low, high))
    assert "The second beside the first: 1 better, 2 equal." in summarize_comparison(matched)
    assert calls(match_sweeps(made(0.05, tag="x"), made()))["ddml"] == "worse"


def test_settings_that_differ_are_named_with_their_cells() -> None:
    matched = match_sweeps(made(), made(tag="x"))
    (setting,) = matched.settings
    assert (setting.path, setting.first, setting.second) == ("optimizer.lr", "0.001", "0.01")
    assert setting.cells == tuple(f"s: variant={row['variant']}" for row in ROWS)


def test_a_search_is_shown_by_its_best_and_by_what_its_trials_have_in_common() -> None:
    def search(offset: int, epochs: str) -> Frame:
        return frame(
            "search",
            [{"x": i + offset} for i in range(4)],
            lambda at, seed: 0.1 * at["x"],
            seeds=1,
            params=lambda at: {"training.epochs": epochs, "optimizer.lr": str(at["x"])},
        )

    matched = match_sweeps(search(0, "1"), search(2, "40"))
    (setting,), (pair,) = matched.settings, matched.studies[0].pairs
    assert (setting.path, setting.first, setting.second) == ("training.epochs", "1", "40")
    assert pair.cell == BEST and (pair.first.cell, pair.second.cell) == ("x=3", "x=5")
    assert pair.difference is not None and pair.difference.mean == pytest.approx(0.2)


def test_the_same_trials_are_said_to_be_so_unless_their_values_differ() -> None:
    """Two stores of one sweep that disagree are what a reader must see."""
    matched = match_sweeps(made(), made())
    assert matched.settings == () and matched.made == () and build_sheets(matched) == []
    assert (
        summarize_comparison(matched)
        == "3 cells in both. The second beside the first: 3 same trials."
    )
    assert "The same trials with the same values: s." in format_comparison(matched)
    shown = build_sheets(match_sweeps(made(), made(0.02)))[0]
    assert [row[0].text for row in shown.rows] == ["variant=ddml"]
    assert "Not shown: 2 cells that are the same trials in both." in shown.notes


def test_cells_and_seeds_of_one_alone_are_named() -> None:
    matched = match_sweeps(made(), made(0.02, rows=ROWS[1:], seeds=1, tag="x"))
    (study,) = matched.studies
    assert study.only == (("variant=plain",), ()) and len(study.pairs) == 2
    assert study.pairs[0].difference is not None and study.pairs[0].difference.n == 1
    assert study.pairs[0].describe_call() == "open"
    assert "Only in the first: variant=plain." in format_comparison(matched)


def test_the_commands(finished: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, sweep = str(finished.folder), finished.sweep_id
    assert main(["diff", sweep, sweep, "--out", out, "--other", finished.uri]) == 0
    assert "same trials." in capsys.readouterr().out
    assert main(["diff", sweep, sweep, "--out", out, "--other", str(tmp_path / "nowhere")]) != 0
    message = capsys.readouterr().err
    assert "no such file" in message and message.count("\n") == 1
