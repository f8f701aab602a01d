"""Collect the facts of a sweep for its report: data, dates, provenance, studies, command."""

from __future__ import annotations

import datetime
from typing import Any

from reports.frame import Frame

VERSION = "ablate.version."
TAGS = {
    "Commit": "ablate.git_commit",
    "Uncommitted changes": "ablate.git_dirty",
    "Device": "ablate.device",
    "Threads": "ablate.threads",
    "Data fingerprint": "ablate.data_fingerprint",
}


def collect_facts(frame: Frame) -> list[tuple[str, str]]:
    """Return the facts of the header: sweep, dates, data, size."""
    document, params = frame.document, list(frame.trials["params"])
    data = sorted({_describe_data_set(p) for p in params if "data.name" in p})
    first = datetime.datetime.fromtimestamp(document["created"], tz=datetime.UTC)
    done = int((frame.trials["status"] == "done").sum())
    seconds = float(frame.trials["seconds"].sum()) if "seconds" in frame.trials else 0.0
    return [
        ("Sweep", f"{document['name']} ({document['sweep_id']})"),
        ("First started", first.strftime("%Y-%m-%d %H:%M UTC")),
        ("Data set", ", ".join(data) or "unknown"),
        ("Objective", frame.main_objective),
        ("Trials", f"{done} finished of {len(set(frame.cells['trial_id']))} planned"),
        ("Training time", format_duration(seconds)),
        *(
            [("Studies not begun", ", ".join(frame.studies_without_cells))]
            if frame.studies_without_cells
            else []
        ),
    ]


def _describe_data_set(params: dict[str, Any]) -> str:
    """Return a data set's name, folder and image size."""
    root, sides = params.get("data.root"), params.get("data.image_size")
    folder = f" {root}" if root not in (None, "", "None", "null") else ""
    return f"{params['data.name']}{folder}" + (f" at {sides} px" if sides else "")


def collect_provenance(frame: Frame) -> list[tuple[str, str]]:
    """Return commit, versions, device and data fingerprint, with all values of the runs."""
    tags = [*(parent.tags for parent in frame.parents), *frame.trials["tags"]]

    def values(name: str) -> str:
        tagged = sorted({t[name] for t in tags if t.get(name)})
        labels = ", ".join(tagged[:4])
        return labels + (f" and {len(tagged) - 4} more" if len(tagged) > 4 else "")

    versions = sorted({name for t in tags for name in t if name.startswith(VERSION)})
    labels = [f"{name.removeprefix(VERSION)} {values(name)}" for name in versions]
    rows = {label: values(tag) for label, tag in TAGS.items()}
    rows["Versions"] = ", ".join(labels)
    rows["Parent runs"] = ", ".join(parent.run_id for parent in frame.parents)
    return [(name, value) for name, value in rows.items() if value]


def find_rerun_command(frame: Frame) -> str:
    """Return the command that made the sweep, or one with the resolved spec."""
    command = (frame.document.get("provenance") or {}).get("command")
    spec = f"python -m ablate.run {frame.document['name']}.yaml"
    return str(command or f"{spec}   # the resolved spec: sweep.json of the parent run")


def summarize_studies(frame: Frame) -> list[dict[str, Any]]:
    """Return for each study its design and the numbers of trials."""
    sections = []
    for name in frame.study_order:
        rows, spec = frame.cells[frame.cells["study"] == name], frame.get_declared_study(name)
        done, failed = (int((rows["status"] == status).sum()) for status in ("done", "failed"))
        sampler = spec.get("sampler", "tpe")
        sampler_name = sampler["class"] if isinstance(sampler, dict) else sampler
        trials = f"{sampler_name}, {spec.get('trials')} trials"
        section = {
            "name": name,
            "design": frame.get_design(name),
            "sampler": trials if "trials" in spec else "",
            "cells": rows["cell"].nunique(),
            "trials": len(rows),
            "done": done,
            "failed": failed,
            "other": len(rows) - done - failed,
            "epochs": int(rows["epochs"].sum()) if "epochs" in rows else 0,
            "time": format_duration(float(rows["seconds"].sum()) if "seconds" in rows else 0.0),
        }
        sections.append(section)
    return sections


def format_duration(seconds: float) -> str:
    """Write `1 h 05 min`, `3 min 20 s`, `4.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
