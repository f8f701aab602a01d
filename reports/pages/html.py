"""The self-contained page: all inline, nothing requested, readable light, dark and printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reports.frame import Frame
from reports.pages import markup, verdict
from reports.pages.facts import facts, provenance, rerun, studies
from reports.pages.figures import inline, template
from reports.pages.verdict import Judged
from reports.tables.cells import EMPTY, divided, protocol
from reports.tables.labels import metric_label, number, scale, slug
from reports.tables.model import AnyTable, TableData
from reports.tables.verdict import groups
from reports.uri import link, redacted, run_page

PROTOCOLS = {
    "test-selected": "Paper protocol: the epoch and the settings were picked on the TEST classes. "
    "Comparable with published numbers; optimistic for unseen data.",
    "validation-selected": "The epoch and the settings were picked on validation classes that "
    "neither train nor test.",
    EMPTY: "No trial has a result: tables and figures show what was planned.",
}
NOTHING: Mapping[str, Any] = MappingProxyType({})
SHOWN = 12  # verdicts on the first screen; the others open on a click
PUBLISHED = " Published numbers beside them are test-selected."


def page(
    frame: Frame,
    tracking_uri: str,
    *,
    tables: Sequence[AnyTable],
    judged: Judged,
    figures: Sequence[Mapping[str, str]],
    best: Mapping[str, str],
    trials: Mapping[str, Mapping[str, str]] = NOTHING,
) -> str:
    """Write the page's HTML (well-formed XML too). figures: as they are `shown`; those
    that stand apart are linked, each on a page beside this one. trials: of some
    trials the files beside the page, what each is and its address."""
    server = link(tracking_uri)
    lost = frame.cells[frame.cells["status"] != "done"]
    known = protocol(frame)
    printed = any(table.published is not None for table in frame.recipe.tables)
    shared = markup.footnotes(tables)
    sections = [
        ("Verdict", "verdict", True),
        ("Tables", "tables", tables),
        ("Notes", "notes", shared),
        ("Figures", "figures", figures),
        ("Studies", "studies", True),
        ("Best configurations", "best", best),
        ("Without a result", "lost", len(lost)),
        ("Provenance", "provenance", True),
        ("Runs", "runs", True),
    ]
    return template("page.html.j2").render(
        title=frame.document.get("title") or frame.document["name"],
        protocol=known,
        protocol_text=PROTOCOLS[known].replace("classes", divided(frame))
        + (PUBLISHED if printed and known == "validation-selected" else ""),
        unfinished=f"{len(lost)} of {len(frame.cells)} cells" if len(lost) else "",
        facts=facts(frame),
        sections=[(name, anchor) for name, anchor, there in sections if there],
        verdict=_verdict(judged),
        tables=[_table(table, shared) for table in tables],
        notes=list(map(markup.with_mark, shared)),
        figures=figures,
        studies=studies(frame),
        best=list(best.items()),
        lost=lost.to_dict("records"),
        provenance=provenance(frame),
        rerun=rerun(frame),
        ui=server or f"mlflow ui --backend-store-uri {redacted(tracking_uri)}",
        server=server,
        experiment_id=frame.parents[0].experiment_id,
        runs=_runs(frame, tables, trials),
        with_files=bool(trials),
    )


def anchor(study: str, cell: str) -> str:
    """Return the id of a cell's first run in the list of runs."""
    return f"runs-{slug(study)}-{slug(cell)}"


def _verdict(judged: Judged) -> dict[str, Any]:
    """Return the headline, the groups of lines that are seen at once, the others, and the plot."""
    seen: list[dict[str, Any]] = []
    folded: list[dict[str, Any]] = []
    count = 0
    for group in groups(judged.verdicts):
        count += len(group)
        lines = [
            {
                "call": each.call,
                "kind": slug(each.call),
                "label": each.label,
                "href": anchor(each.study, each.cell),
                "difference": verdict.difference(each),
                "evidence": verdict.evidence(each),
            }
            for each in group
        ]
        head = {"key": group[0].key, "title": group[0].title, "heading": verdict.heading(group)}
        (seen if count <= SHOWN or not seen else folded).append({**head, "lines": lines})
    return {
        "headline": judged.headline,
        "warnings": judged.warnings,
        "seen": seen,
        "folded": folded,
        "hidden": sum(len(group["lines"]) for group in folded),
        "note": verdict.note(judged.verdicts),
        "plot": inline(*judged.plot) if judged.plot else None,
    }


def _table(table: AnyTable, shared: Sequence[str]) -> dict[str, Any]:
    study = table.recipe.study
    marks = [(False, f"runs-{slug(study)}")] * len(table.rows)
    if isinstance(table, TableData):
        marks = [(row.baseline, anchor(study, row.cell)) for row in table.rows]
    parts = []
    for part in markup.parts(markup.grid(table)):
        rows = [
            {
                "fields": fields,
                "baseline": baseline,
                "hrefs": [anchor(*field.of) if field.of else href for field in fields],
            }
            for (baseline, href), fields in zip(marks, part.rows, strict=True)
        ]
        parts.append({"headers": part.headers, "labels": part.labels, "rows": rows})
    return {
        "key": table.key,
        "title": table.title,
        "caption": table.recipe.caption,
        "notes": markup.own_notes(table, shared),
        "numbers": markup.note_numbers(table, shared),
        "parts": parts,
    }


def _runs(
    frame: Frame, tables: Sequence[AnyTable], trials: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return the list of each study's runs, with the objective and every metric of a table that
    links to these runs, so that the value that a reader clicked on stands there."""
    metrics = {study: {frame.main_objective: None} for study in frame.study_order}
    for table in tables:
        fields = (field for row in markup.grid(table).rows for field in row)
        linked = {table.recipe.study, *(field.of[0] for field in fields if field.of)}
        for study in linked & metrics.keys():
            metrics[study] |= dict.fromkeys(table.recipe.metrics)
    experiments = {parent.run_id: parent.experiment_id for parent in frame.parents}
    parent_of = dict(zip(frame.trials["run_id"], frame.trials["parent_run_id"], strict=True))
    groups = []
    for study, shown in metrics.items():
        rows, seen = [], set()
        for cell in frame.cells[frame.cells["study"] == study].to_dict("records"):
            mark = anchor(study, cell["cell"])
            experiment = experiments.get(parent_of.get(cell["run_id"], ""), "")
            values = [float(cell.get(metric, math.nan)) * scale(metric) for metric in shown]
            own = {
                "anchor": "" if mark in seen else mark,
                "values": [number(v, 2) if math.isfinite(v) else "–" for v in values],
                "files": trials.get(cell["trial_id"], NOTHING),
                "page": run_page(experiment, cell["run_id"]),
            }
            rows.append(cell | own)
            seen.add(mark)
        names = [metric_label(metric) for metric in shown]
        groups.append({"key": f"runs-{slug(study)}", "name": study, "metrics": names, "rows": rows})
    return groups
