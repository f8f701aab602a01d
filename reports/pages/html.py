"""The self-contained page: all inline, nothing requested, readable light, dark and printed."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from reports.figures.drawn import Drawn
from reports.frame import Frame
from reports.pages import markup
from reports.tables.cells import divided, protocol
from reports.tables.labels import number, scale, slug
from reports.tables.model import AnyTable, TableData
from reports.uri import link, redacted

PROTOCOLS = {
    "test-selected": "Paper protocol: the epoch and the settings were picked on the TEST classes. "
    "Comparable with published numbers; optimistic for unseen data.",
    "validation-selected": "The epoch and the settings were picked on validation classes that "
    "neither train nor test.",
}
PUBLISHED = " Published numbers beside them are test-selected."


def page(
    frame: Frame,
    tracking_uri: str,
    tables: Sequence[AnyTable],
    figures: Sequence[tuple[Drawn, Path]],
    best: Mapping[str, str],
) -> str:
    """The page's HTML (well-formed XML too). `figures`: each with its SVG file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    server = link(tracking_uri)
    lost = frame.cells[frame.cells["status"] != "done"]
    known = protocol(frame)
    printed = any(table.published is not None for table in frame.recipe.tables)
    beside = printed and known == "validation-selected"
    sections = [
        ("Tables", "tables", tables),
        ("Figures", "figures", figures),
        ("Studies", "studies", True),
        ("Best configurations", "best", best),
        ("Without a result", "lost", len(lost)),
        ("Provenance", "provenance", True),
        ("Runs", "runs", True),
    ]
    return environment.get_template("page.html.j2").render(
        title=frame.document.get("title") or frame.document["name"],
        protocol=known,
        protocol_text=PROTOCOLS[known].replace("classes", divided(frame))
        + (PUBLISHED if beside else ""),
        unfinished=f"{len(lost)} of {len(frame.cells)} cells" if len(lost) else "",
        facts=facts(frame),
        sections=[(name, anchor) for name, anchor, there in sections if there],
        tables=[_table(table) for table in tables],
        figures=[_figure(drawn, svg) for drawn, svg in figures],
        studies=studies(frame),
        best=list(best.items()),
        lost=lost.to_dict("records"),
        provenance=provenance(frame),
        rerun=rerun(frame),
        ui=server or f"mlflow ui --backend-store-uri {redacted(tracking_uri)}",
        server=server,
        experiment_id=frame.parents[0].experiment_id,
        objective=objective(frame),
        runs=_runs(frame),
    )


def objective(frame: Frame) -> str:
    return str(frame.document.get("objective") or "val/map_at_r")


def facts(frame: Frame) -> list[tuple[str, str]]:
    """The header's facts: sweep, dates, data, size."""
    document, params = frame.document, list(frame.trials["params"])
    data = sorted({_data(p) for p in params if "data.name" in p})
    first = datetime.datetime.fromtimestamp(document["created"], tz=datetime.UTC)
    done = int((frame.trials["status"] == "done").sum())
    seconds = float(frame.trials["seconds"].sum()) if "seconds" in frame.trials else 0.0
    return [
        ("Sweep", f"{document['name']} ({document['sweep_id']})"),
        ("First started", first.strftime("%Y-%m-%d %H:%M UTC")),
        ("Data set", ", ".join(data) or "unknown"),
        ("Objective", objective(frame)),
        ("Trials", f"{done} finished of {len(set(frame.cells['trial_id']))} planned"),
        ("Training time", duration(seconds)),
        *([("Studies not begun", ", ".join(frame.idle))] if frame.idle else []),
    ]


def _data(params: dict[str, Any]) -> str:
    """A data set's name, the folder it was read from, and the size of the images."""
    root = params.get("data.root")
    place = f" {root}" if root not in (None, "", "None", "null") else ""
    sides = params.get("data.image_size")
    return f"{params['data.name']}{place}" + (f" at {sides} px" if sides else "")


def provenance(frame: Frame) -> list[tuple[str, str]]:
    """Commit, versions, device, data fingerprint: every value that any run has."""
    tags = [*(parent.tags for parent in frame.parents), *frame.trials["tags"]]

    def values(name: str) -> str:
        tagged = sorted({t[name] for t in tags if t.get(name)})
        shown = ", ".join(tagged[:4])
        return shown + (f" and {len(tagged) - 4} more" if len(tagged) > 4 else "")

    versions = sorted({name for t in tags for name in t if name.startswith("ablate.version.")})
    rows = [
        ("Commit", values("ablate.git_commit")),
        ("Uncommitted changes", values("ablate.git_dirty")),
        ("Device", values("ablate.device")),
        ("Threads", values("ablate.threads")),
        ("Data fingerprint", values("ablate.data_fingerprint")),
        (
            "Versions",
            ", ".join(f"{v.removeprefix('ablate.version.')} {values(v)}" for v in versions),
        ),
        ("Parent runs", ", ".join(parent.run_id for parent in frame.parents)),
    ]
    return [(name, value) for name, value in rows if value]


def rerun(frame: Frame) -> str:
    """The command of the sweep's provenance, or how to get at its spec."""
    command = (frame.document.get("provenance") or {}).get("command")
    spec = f"python -m ablate.run {frame.document['name']}.yaml"
    return str(command or f"{spec}   # the resolved spec: sweep.json of the parent run")


def studies(frame: Frame) -> list[dict[str, Any]]:
    """Per study: design, what it was allowed and what it used."""
    sections = []
    for name in frame.study_order:
        rows = frame.cells[frame.cells["study"] == name]
        spec = (frame.document.get("studies") or {}).get(name) or {}
        status = rows["status"].value_counts()
        done, failed = int(status.get("done", 0)), int(status.get("failed", 0))
        sampler = (
            f"{spec.get('sampler', 'tpe')}, {spec['trials']} trials" if "trials" in spec else ""
        )
        sections.append(
            {
                "name": name,
                "design": frame.design(name),
                "sampler": sampler,
                "cells": rows["cell"].nunique(),
                "trials": len(rows),
                "done": done,
                "failed": failed,
                "other": len(rows) - done - failed,
                "epochs": int(rows["epochs"].sum()) if "epochs" in rows else 0,
                "time": duration(float(rows["seconds"].sum()) if "seconds" in rows else 0.0),
            }
        )
    return sections


def duration(seconds: float) -> str:
    """`1 h 05 min`, `3 min 20 s`, `4.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def anchor(study: str, cell: str) -> str:
    """The id of a cell's first run in the list of runs."""
    return f"runs-{slug(study)}-{slug(cell)}"


def _table(table: AnyTable) -> dict[str, Any]:
    found = markup.grid(table)
    study = table.recipe.study
    marks = (
        [(row.baseline, anchor(study, row.cell)) for row in table.rows]
        if isinstance(table, TableData)
        else [(False, f"runs-{slug(study)}")] * len(table.rows)
    )
    return {
        "key": table.key,
        "title": table.title,
        "caption": table.recipe.caption,
        "headers": found.headers,
        "labels": found.labels,
        "notes": markup.marked_notes(table),
        "rows": [
            {
                "fields": fields,
                "baseline": baseline,
                "hrefs": [anchor(*field.of) if field.of else href for field in fields],
            }
            for (baseline, href), fields in zip(marks, found.rows, strict=True)
        ],
    }


def _figure(drawn: Drawn, svg: Path) -> dict[str, str]:
    data = base64.b64encode(svg.read_bytes()).decode()
    return {
        "key": drawn.key,
        "title": drawn.title,
        "caption": drawn.caption,
        "source": f"data:image/svg+xml;base64,{data}",
        "href": f"runs-{slug(drawn.study)}",
    }


def _runs(frame: Frame) -> list[dict[str, Any]]:
    metric = objective(frame)
    experiments = {parent.run_id: parent.experiment_id for parent in frame.parents}
    parent_of = dict(zip(frame.trials["run_id"], frame.trials["parent_run_id"], strict=True))
    groups = []
    for study in frame.study_order:
        rows, seen = [], set()
        for cell in frame.cells[frame.cells["study"] == study].to_dict("records"):
            mark = anchor(study, cell["cell"])
            value = float(cell.get(metric, math.nan))
            rows.append(
                {
                    **cell,
                    "anchor": "" if mark in seen else mark,
                    "value": number(value * scale(metric), 2) if math.isfinite(value) else "–",
                    "experiment_id": experiments.get(parent_of.get(cell["run_id"], ""), ""),
                }
            )
            seen.add(mark)
        groups.append({"key": f"runs-{slug(study)}", "name": study, "rows": rows})
    return groups
