"""A comparison over several searches: what its table and its verdicts say."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml

import ablate
from reports.best import format_best_config
from reports.frame import Frame
from reports.pages import verdict_text as words
from reports.pages.table_files import to_csv
from reports.pages.verdict_text import format_verdicts, read_verdicts
from reports.recipe import Table
from reports.tables.build import build_table
from reports.tables.model import TableData
from reports.tables.questions import build_questions
from reports.tables.verdict import Verdict, judge_tables
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain
from tests.reports.made import METRIC, Row, assemble

LUCK = {"plain": (0.0, 0.004, 0.001), "ddml": (0.03, 0.04, 0.029), "copy": (0.0, 0.004, 0.001)}
NOISE = (0.001, -0.001, 0.002, 0.0, -0.002)


def build_frame(*, splits: int = 0, lost: tuple[str, int, int] | None = None) -> Frame:
    """Three searches of three rows over five seeds, or over so many splits at one seed."""
    rows = []
    for k, study in enumerate(("s", "s_search2", "s_search3")):
        for idx, (cell, luck) in enumerate(LUCK.items()):
            for block in range(splits or 5):
                value = 0.5 + 0.02 * block + luck[k] + (cell == "ddml") * NOISE[block]
                mark = f"{k}-{cell}-{block}"
                final = None if (cell, k, block) == lost else value
                seed = 0 if splits else block
                rows.append(Row(study, cell, {"variant": cell}, idx, seed, final, mark))
    design = {"design": "compare"} | ({"splits": splits} if splits else {})
    studies = dict.fromkeys(("s", "s_search2", "s_search3"), design)
    planned = {
        "searches": {"s": ["s_search2", "s_search3"]},
        "tuning": {"s": dict.fromkeys(LUCK, 9)},
    }
    if not splits:
        return assemble(rows, studies, **planned)
    frame = assemble([row._replace(seed=int(row.mark[-1])) for row in rows], studies, **planned)
    frame.cells["fold"] = frame.cells["seed"]
    frame.cells["seed"] = 0
    return frame


def judge(frame: Frame) -> tuple[TableData, list[Verdict]]:
    table = build_table(frame, Table(kind="compare", study="s", metrics=(METRIC,)))
    assert isinstance(table, TableData)
    return table, judge_tables(frame, [table])


def test_values_are_means_and_intervals_have_the_scatter() -> None:
    table, (ddml, same) = judge(build_frame())
    differences = [b - a for a, b in zip(LUCK["plain"], LUCK["ddml"], strict=True)]
    assert ddml.difference is not None and ddml.difference.high is not None
    assert ddml.difference.mean == pytest.approx(fmean(differences))
    assert (ddml.n, ddml.searches, ddml.call) == (5, 3, "better")
    assert ddml.searches_sd == pytest.approx(stdev(differences))
    # m = 1: half² is at least (t s / √3)², t of two degrees of freedom
    assert ddml.difference.high - ddml.difference.mean > 4.30 * stdev(differences) / 3**0.5
    assert (same.call, same.same_as, same.searches_sd) == ("same", "plain", 0)
    assert table.rows[0].measured[METRIC].summary.n == 5  # type: ignore[union-attr]
    assert len(table.rows[1].run_ids) == 15
    notes = " ".join(table.notes)
    deviation = f"{100 * stdev(differences):.2f}"
    assert f"between searches with a standard deviation of {deviation}. Intervals contain" in notes
    assert "9 trials planned for each row in each search, an equal budget" in notes


def test_files_have_the_scatter_of_each_row(tmp_path: Path) -> None:
    frame = build_frame()
    table, verdicts = judge(frame)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["searches_sd"] for row in rows] == ["", str(verdicts[0].searches_sd), "0.0"]
    (tmp_path / "verdicts.json").write_text(format_verdicts(frame, verdicts))
    assert list(read_verdicts(tmp_path / "verdicts.json").verdicts) == verdicts


@pytest.mark.parametrize(
    ("splits", "claim"),
    [
        (0, "for the values found by these 3"),
        (4, "for the values found by these 3"),
        (5, "further searches, too"),
    ],
)
def test_claims_are_about_further_searches_over_five_splits(splits: int, claim: str) -> None:
    _, verdicts = judge(build_frame(splits=splits))
    assert claim in words.format_scope(build_questions(verdicts)[0])
    unit = f"{splits} splits" if splits else "5 seeds"
    assert f"{unit}, 3 searches)" in words.format_effect(verdicts[0])


def test_what_a_search_lacks_is_left_out_and_named() -> None:
    table, (ddml, _) = judge(build_frame(lost=("ddml", 1, 2)))
    assert ddml.n == 4 and ddml.call == "open" and ddml.failed == "1 of 15 runs failed"
    assert table.rows[1].gaps == ("ddml, seed 2, search 2: failed (not finite)",)


def test_a_row_says_in_how_many_searches_it_is_neutral() -> None:
    """The second row of `ddml` repeats the first one, except where the neutral cell won."""
    rows = [
        Row(
            study,
            cell,
            {"variant": cell},
            idx,
            seed,
            0.5 + 0.01 * idx * (k + 1) + 0.02 * seed,
            mark,
        )
        for k, study in enumerate(("s", "s_search2"))
        for idx, cell in enumerate(("plain", "ddml", "ddml, not neutral"))
        for seed in range(2)
        for mark in [f"{k}-{min(idx, 1) if k else idx}-{seed}"]
    ]
    studies = {study: {"design": "compare"} for study in ("s", "s_search2")}
    table, _ = judge(assemble(rows, studies, searches={"s": ["s_search2"]}))
    assert table.rows[1].labels == ("ddml (switched off by tuning in 1 of 2 searches)",)
    first = "ddml: switched off by tuning in 1 of 2 searches. In these searches no configuration"
    assert any(note.startswith(first) for note in table.notes)


def test_the_best_configuration_is_the_first_searchs() -> None:
    frame = build_frame()
    text = format_best_config(frame, "s") or ""
    assert f"{0.54 + 0.03:.6f} (mean of 5 trials)" in text and "run run0-ddml-4" in text


@pytest.mark.parametrize(("key", "place"), [("splits", "part"), ("folds", "fold"), (None, "fold")])
def test_the_best_configuration_has_all_splits_or_folds(key: str | None, place: str) -> None:
    """Not the one of its first trial; what no key of the study sets stays."""
    frame = build_frame(splits=5)
    frame.document["studies"]["s"] = {"design": "compare"} | ({key: 5} if key else {})
    split = {"protocol": "held_out"}
    config = {"data": {"split": {**split, place: 0, f"{place}s": 5}}, "training": {"epochs": 3}}
    frame.trials["config"] = [config] * len(frame.trials)
    spec = yaml.safe_load(format_best_config(frame, "s") or "")
    assert spec["trial"] == (config | {"data": {"split": split}} if key else config)
    assert [spec["studies"]["best"].get(name) for name in ("splits", "folds")] == [
        5 if name == key else None for name in ("splits", "folds")
    ]


@pytest.mark.slow
def test_a_whole_sweep_with_two_searches(tmp_path: Path) -> None:
    tables = [{"kind": "compare", "study": "rows", "metrics": ["val/map_at_r"]}]
    spec = specs.spec(searches=2, studies__rows__seeds=[3, 4, 5], report__tables=tables)
    drain(dispatch(specs.plan(spec), tmp_path))  # so that Ray is not needed
    runner = {"runner": "tests.ablate.synthetic:run_job"}
    results = ablate.run(
        spec, out=tmp_path, fingerprint="tests.ablate.synthetic:fingerprint", **runner
    )
    assert results.outcome.is_finished and results.outcome.trained == 0
    (verdict,) = read_verdicts(results.paths["verdicts.json"]).verdicts
    assert (verdict.study, verdict.n, verdict.searches) == ("rows", 3, 2)
    frame = results.frame
    means = [
        frame[(frame["study"] == study) & (frame["cell"] == "ddml")]["val/map_at_r"].mean()
        - frame[(frame["study"] == study) & (frame["cell"] == "base")]["val/map_at_r"].mean()
        for study in ("rows", "rows_search2")
    ]
    assert verdict.difference is not None and means[0] != means[1]
    assert verdict.difference.mean == pytest.approx(fmean(means))
    assert verdict.searches_sd == pytest.approx(stdev(means))
    assert "2 searches" in results.paths["report.md"].read_text()
