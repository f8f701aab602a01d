"""Tables that are hard to fit: long names, many metrics, many factors, slips, shared notes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reports.figures.figure import DrawnFigure
from reports.figures.forest import draw_forest_plot
from reports.frame import Frame
from reports.pages import html
from reports.pages.verdict_text import VerdictSection
from reports.recipe import Heatmap, Table
from reports.tables.build import build_table
from reports.tables.model import AnyTable
from reports.tables.verdict import judge_tables, summarize_verdicts
from tests.reports.made import draw_part, frame

METRICS = ("val/map_at_r", "val/recall_at_1", "val/r_precision", "val/nmi", "val/recall_at_8")
COMPARED = [
    {"variant": name}
    for name in (
        "NormSoftmax",
        "Deep Disentangled Metric Learning (+NormSoftmax), printed weights",
        "[bracketed] first & <last> 100 %_of_#1",
        "*starred* ~ under_score ^ {brace}",
        "method.with.a.path.of.many.parts_and_underscores",
    )
]
FACTORS = (
    "optimizer.multipliers.proxies",
    "method.alpha",
    "method.beta",
    "loss.temperature",
    "training.schedule.warmup_epochs",
    "data.augment.flip",
    "embedding.dim",
)
PUBLISHED: dict[str, Any] = {
    "table": "ddml/table1",
    "columns": {"val/map_at_r": "CUB/R@1"},
    "rows": {"NormSoftmax": "NS", COMPARED[1]["variant"]: "DDML(+NS)"},
}


def _with_all(found: Frame) -> Frame:
    """Every metric has the first one's values."""
    trials = found.trials.assign(**dict.fromkeys(METRICS, found.trials[METRICS[0]]))
    return Frame(None, found.parents, trials)


def _value(at: dict[str, Any], seed: int) -> float:
    """A number that depends on the names alone, so that each run of the tests has the same."""
    return 0.5 + sum(map(ord, str(at))) % 17 / 100 + (seed * 7 % 5) / 1000


def compared() -> Frame:
    return _with_all(
        frame("compare", COMPARED, _value, tuning={r["variant"]: 16 for r in COMPARED})
    )


def searched() -> Frame:
    points = [dict.fromkeys(FACTORS, (i + 1) * 1.2345e-05) for i in range(4)]
    return _with_all(frame("search", points, _value, seeds=1, study={"space": {}}))


def tables() -> list[AnyTable]:
    """As a report has them: two that share notes, and one of many columns of labels."""
    both = [
        Table(kind="compare", study="s", metrics=METRICS, title=title, published=PUBLISHED)  # type: ignore[arg-type]
        for title in ("Rows with long names", "The same again, 50 % of it *starred*")
    ]
    made = [build_table(compared(), table) for table in both]
    wide = build_table(
        searched(), Table(kind="search", study="s", metrics=METRICS, title="Searched")
    )
    keys = ("table_rows", "table_again", "table_searched")
    return [replace(table, key=key) for table, key in zip([*made, wide], keys, strict=True)]


def gridded() -> DrawnFigure:
    """A heatmap, which is narrower than other figures."""
    points = [{"method.alpha": a, "method.beta": b} for a in (1, 2) for b in (1, 2, 3)]
    return draw_part(
        frame("grid", points, _value),
        heatmaps=[Heatmap(study="s", x="method.alpha", y="method.beta")],
    )


def page(folder: Path) -> Path:
    """A report's page of them, with its forest plot and two figures more."""
    made, whole = tables(), compared()
    found = judge_tables(whole, made)
    drawn = draw_forest_plot(found)
    assert drawn is not None
    plot = (drawn, drawn.save_files(folder)["svg"])
    more = [
        draw_part(searched(), tables=[Table(kind="search", study="s", title="A search")]),
        gridded(),
    ]
    drawings = [plot, *((each, each.save_files(folder)["svg"]) for each in more)]
    text = html.render_page(
        whole,
        "sqlite:////somewhere/mlflow.db",
        tables=made,
        judged=VerdictSection(summarize_verdicts(whole, found), found, plot),
        figures=[html.render_in_report(drawing, svg) for drawing, svg in drawings],
        best={"best.yaml": "a: " + "long " * 60},
    )
    path = folder / "report.html"
    # The figure stands twice here, so that the grid of figures has one; ids must not.
    path.write_text(text.replace(' id="forest"', "", 1), encoding="utf-8")
    return path
