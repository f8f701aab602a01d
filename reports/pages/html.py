"""Write the self-contained page: no requests, readable in light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reports.frame import Frame
from reports.pages import markup, verdict
from reports.pages.facts import (
    collect_facts,
    collect_provenance,
    find_rerun_command,
    summarize_studies,
)
from reports.pages.figures import load_template, render_inline
from reports.pages.verdict import VerdictSection
from reports.tables.cells import EMPTY, find_protocol, find_split_unit
from reports.tables.labels import display_scale, format_metric_label, format_number, to_slug
from reports.tables.model import AnyTable, TableData
from reports.tables.verdict import group_verdicts
from reports.uri import find_server_address, redact_uri, run_page

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


def render_page(
    frame: Frame,
    tracking_uri: str,
    *,
    tables: Sequence[AnyTable],
    judged: VerdictSection,
    figures: Sequence[Mapping[str, str]],
    best: Mapping[str, str],
    trials: Mapping[str, Mapping[str, str]] = NOTHING,
) -> str:
    """Write the HTML of the page (well-formed XML too).

    Args:
        figures: as HTML; those with pages of their own are links.
        trials: trial → its files beside the page, with names and addresses.
    """
    server = find_server_address(tracking_uri)
    lost = frame.cells[frame.cells["status"] != "done"]
    protocol = find_protocol(frame)
    printed = any(table.published is not None for table in frame.recipe.tables)
    shared = markup.collect_footnotes(tables)
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
    return load_template("page.html.j2").render(
        title=frame.document.get("title") or frame.document["name"],
        protocol=protocol,
        protocol_text=PROTOCOLS[protocol].replace("classes", find_split_unit(frame))
        + (PUBLISHED if printed and protocol == "validation-selected" else ""),
        unfinished=f"{len(lost)} of {len(frame.cells)} cells" if len(lost) else "",
        facts=collect_facts(frame),
        sections=[(name, anchor) for name, anchor, there in sections if there],
        verdict=_build_verdict_section(judged),
        tables=[_build_table_section(table, shared) for table in tables],
        notes=list(map(markup.add_note_mark, shared)),
        figures=figures,
        studies=summarize_studies(frame),
        best=list(best.items()),
        lost=lost.to_dict("records"),
        provenance=collect_provenance(frame),
        rerun=find_rerun_command(frame),
        ui=server or f"mlflow ui --backend-store-uri {redact_uri(tracking_uri)}",
        server=server,
        experiment_id=frame.parents[0].experiment_id,
        runs=_list_runs(frame, tables, trials),
        with_files=bool(trials),
    )


def build_run_anchor(study: str, cell: str) -> str:
    """Return the id of a cell's first run in the list of runs."""
    return f"runs-{to_slug(study)}-{to_slug(cell)}"


def _build_verdict_section(judged: VerdictSection) -> dict[str, Any]:
    """Return the headline, the first groups of lines, the others, and the plot."""
    seen: list[dict[str, Any]] = []
    folded: list[dict[str, Any]] = []
    count = 0
    for group in group_verdicts(judged.verdicts):
        count += len(group)
        lines = [
            {
                "call": verdict.format_call(verdict_line),
                "kind": to_slug(verdict_line.call),
                "label": verdict_line.label,
                "href": f"runs-{to_slug(verdict_line.study)}"
                if verdict_line.is_term
                else build_run_anchor(verdict_line.study, verdict_line.cell),
                "difference": verdict.format_difference(verdict_line),
                "evidence": verdict.format_evidence(verdict_line),
            }
            for verdict_line in group
        ]
        head = {
            "key": group[0].key,
            "title": group[0].title,
            "heading": verdict.format_group_heading(group),
        }
        (seen if count <= SHOWN or not seen else folded).append({**head, "lines": lines})
    return {
        "headline": judged.headline,
        "warnings": judged.warnings,
        "seen": seen,
        "folded": folded,
        "hidden": sum(len(group["lines"]) for group in folded),
        "note": verdict.explain_verdicts(judged.verdicts),
        "plot": render_inline(*judged.plot) if judged.plot else None,
    }


def _build_table_section(table: AnyTable, shared: Sequence[str]) -> dict[str, Any]:
    study = table.recipe.study
    marks = [(False, f"runs-{to_slug(study)}")] * len(table.rows)
    if isinstance(table, TableData):
        marks = [(row.baseline, build_run_anchor(study, row.cell)) for row in table.rows]
    parts = []
    for part in markup.split_further_columns(markup.build_grid(table)):
        rows = [
            {
                "fields": fields,
                "baseline": baseline,
                "hrefs": [build_run_anchor(*field.of) if field.of else href for field in fields],
            }
            for (baseline, href), fields in zip(marks, part.rows, strict=True)
        ]
        parts.append({"headers": part.headers, "labels": part.labels, "rows": rows})
    return {
        "key": table.key,
        "title": table.title,
        "caption": table.recipe.caption,
        "notes": markup.list_own_notes(table, shared),
        "numbers": markup.note_numbers(table, shared),
        "parts": parts,
    }


def _list_runs(
    frame: Frame, tables: Sequence[AnyTable], trials: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return the list of runs of each study, with the objective and all metrics of tables that link
    to them.
    """
    metrics = {study: {frame.main_objective: None} for study in frame.study_order}
    for table in tables:
        fields = (field for row in markup.build_grid(table).rows for field in row)
        linked = {table.recipe.study, *(field.of[0] for field in fields if field.of)}
        for study in linked & metrics.keys():
            metrics[study] |= dict.fromkeys(table.recipe.metrics)
    experiments = {parent.run_id: parent.experiment_id for parent in frame.parents}
    parent_of = dict(zip(frame.trials["run_id"], frame.trials["parent_run_id"], strict=True))
    groups = []
    for study, study_metrics in metrics.items():
        rows, seen = [], set()
        for cell in frame.cells[frame.cells["study"] == study].to_dict("records"):
            mark = build_run_anchor(study, cell["cell"])
            experiment = experiments.get(parent_of.get(cell["run_id"], ""), "")
            values = [
                float(cell.get(metric, math.nan)) * display_scale(metric)
                for metric in study_metrics
            ]
            study_runs = {
                "anchor": "" if mark in seen else mark,
                "values": [format_number(v, 2) if math.isfinite(v) else "–" for v in values],
                "files": trials.get(cell["trial_id"], NOTHING),
                "page": run_page(experiment, cell["run_id"]),
            }
            rows.append(cell | study_runs)
            seen.add(mark)
        names = [format_metric_label(metric) for metric in study_metrics]
        groups.append(
            {"key": f"runs-{to_slug(study)}", "name": study, "metrics": names, "rows": rows}
        )
    return groups
