"""Two sweeps side by side: the same cells, their differences by seed, and what made them differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy import stats as scipy_stats

from ablate.cli.main import main
from reports.compare import compare_study, format_comparison, list_differing_settings
from reports.frame import Frame
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


def calls(first: Frame, second: Frame) -> dict[str, str]:
    sheet, _ = compare_study(first, second, "s")
    return {row[0].text.removeprefix("variant="): row[-1].text for row in sheet.rows}


def test_a_cell_s_difference_is_paired_by_seed() -> None:
    sheet, verdicts = compare_study(made(), made(0.05, tag="x"), "s")
    assert verdicts == ["equal", "better", "equal"]
    gaps = [100 * (0.05 + 0.001 * (seed % 3)) for seed in range(SEEDS)]
    low, high = scipy_stats.t.interval(0.95, SEEDS - 1, sum(gaps) / SEEDS, scipy_stats.sem(gaps))
    size = f"+{sum(gaps) / SEEDS:.2f} [+{low:.2f}, +{high:.2f}]"
    assert sheet.rows[1][3].text == size
    text = format_comparison(made(), made(0.05, tag="x"))
    assert "The second beside the first: 1 better, 2 equal." in text
    assert calls(made(0.05, tag="x"), made())["ddml"] == "worse"


def test_a_row_that_copies_another_has_its_call() -> None:
    """As of a method whose best is neutral; only what is the same in both sweeps is equal."""
    rows = [{"variant": name} for name in ("plain", "ddml", "neutral")]

    def build(loss: float, tag: str) -> Frame:
        def value(at: dict[str, Any], seed: int) -> float:
            own = 0.02 if at["variant"] == "ddml" else loss * (1 + 0.01 * (seed % 3))
            return 0.5 + 0.01 * (seed % 4) - own

        found = frame("compare", rows, value, seeds=SEEDS)
        for cell in found.document["cells"]:
            cell["trial_id"] = tag + cell["trial_id"]
        trials = found.trials.assign(trial_id=tag + found.trials["trial_id"])
        return Frame(None, found.parents, trials)

    first, second = build(0.0, "a"), build(0.01, "b")
    assert calls(first, second) == {"plain": "worse", "ddml": "equal", "neutral": "worse"}
    assert "The second beside the first: 2 worse, 1 equal." in format_comparison(first, second)


@pytest.mark.parametrize(
    ("primary", "direction", "call"),
    [
        (None, "maximize", "worse"),
        ("val/density", "maximize", "better"),
        (None, "minimize", "better"),
    ],
)
def test_the_metric_of_the_verdicts_is_compared_in_its_direction(
    primary: str | None, direction: str, call: str
) -> None:
    """Not the first one of the study's first table."""
    frames = []
    for gain, tag in ((0.0, ""), (0.05, "x")):
        found = made(gain, tag=tag)
        study = found.document["studies"]["s"]
        study["objectives"] = [{"metric": "val/map_at_r", "direction": direction}]
        tables = [
            {"kind": "effects", "study": "s", "metrics": ["val/density"]},
            {"kind": "compare", "study": "s", "metrics": ["val/density", "test/map_at_r"]},
        ]
        found.document["report"] = {"tables": tables, "primary": primary}
        values = found.trials["val/map_at_r"]
        trials = found.trials.assign(**{"val/density": values, "test/map_at_r": 1 - values})
        frames.append(Frame(None, found.parents, trials))
    assert calls(*frames)["ddml"] == call


def test_settings_that_differ_are_named_with_their_cells() -> None:
    (setting,) = list_differing_settings(made(), made(tag="x"), ["s"])
    assert setting == (
        *("optimizer.lr", "0.001", "0.01"),
        "s: variant=plain; s: variant=ddml and 1 more",
    )


def test_a_search_is_shown_by_its_best_and_by_what_its_trials_have_in_common() -> None:
    def search(offset: int, epochs: str) -> Frame:
        return frame(
            "search",
            [{"x": i + offset} for i in range(4)],
            lambda at, seed: 0.1 * at["x"],
            seeds=1,
            params=lambda at: {"training.epochs": epochs, "optimizer.lr": str(at["x"])},
        )

    first, second = search(0, "1"), search(2, "40")
    (setting,) = list_differing_settings(first, second, ["s"])
    assert setting[:3] == ("training.epochs", "1", "40")
    ((title, *_, size, _),) = compare_study(first, second, "s")[0].rows
    assert title.text == "best of the search: x=3 and x=5" and size.text.startswith("+20.00")


def test_the_same_trials_are_said_to_be_so_unless_their_values_differ() -> None:
    """Two stores of one sweep that disagree are what a reader must see."""
    text = format_comparison(made(), made())
    assert "3 cells in both. The second beside the first: 3 same trials." in text
    assert "The same trials with the same values: s." in text and "setting" not in text
    sheet, _ = compare_study(made(), made(0.02), "s")
    assert [row[0].text for row in sheet.rows] == ["variant=ddml"]
    assert "Not shown: 2 cells that are the same trials in both." in sheet.notes


def test_cells_and_seeds_of_one_alone_are_named() -> None:
    first, second = made(), made(0.02, rows=ROWS[1:], seeds=1, tag="x")
    assert calls(first, second) == {"ddml": "open", "nir": "equal"}
    assert "Only in the first: variant=plain." in format_comparison(first, second)


@pytest.mark.slow
def test_the_commands(finished: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, sweep = str(finished.folder), finished.sweep_id
    assert main(["diff", sweep, sweep, "--out", out, "--other", finished.uri]) == 0
    assert "same trials." in capsys.readouterr().out
    assert main(["diff", sweep, sweep, "--out", out, "--other", str(tmp_path / "nowhere")]) != 0
    message = capsys.readouterr().err
    assert "does not exist" in message and message.count("\n") == 1
