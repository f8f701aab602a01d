"""Collect the facts of a sweep for its report: data, dates, provenance, studies."""

import datetime
from typing import Any

from reports.frame import Frame
from reports.tables.cells import count_classes

VERSION = "ablate.version."
TAGS = {
    "Commit": "ablate.git_commit",
    "Uncommitted changes": "ablate.git_dirty",
    "Device": "ablate.device",
    "Threads": "ablate.threads",
    "Data fingerprint": "ablate.data_fingerprint",
}


def collect_facts(frame: Frame) -> list[tuple[str, str]]:
    """Return (name, value) of a report's facts: sweep, start, data, objective, trials, time."""
    document = frame.document
    data = sorted({_describe_data_set(p) for p in frame.trials["params"] if "data.name" in p})
    started = datetime.datetime.fromtimestamp(document["created"], tz=datetime.UTC)
    done = int((frame.trials["status"] == "done").sum())
    seconds = float(frame.trials["seconds"].sum()) if "seconds" in frame.trials else 0.0
    facts = [
        ("Sweep", f"{document['name']} ({document['sweep_id']})"),
        ("First started", started.strftime("%Y-%m-%d %H:%M UTC")),
        ("Data set", ", ".join(data) or "unknown"),
        *(("Test classes", n) for n in count_classes(frame, frame.cells, ["test/"]).values()),
        ("Objective", frame.main_objective),
        ("Trials", f"{done} finished of {len(set(frame.cells['trial_id']))} planned"),
        ("Training time", _format_duration(seconds)),
    ]
    if studies := frame.studies_without_cells:
        facts.append(("Studies not begun", ", ".join(studies)))
    return facts


def _describe_data_set(params: dict[str, Any]) -> str:
    """Return a data set's name, folder and image size."""
    root, size = params.get("data.root"), params.get("data.image_size")
    folder = f" {root}" if root not in (None, "", "None", "null") else ""
    return f"{params['data.name']}{folder}" + (f" at {size} px" if size else "")


def collect_provenance(frame: Frame) -> list[tuple[str, str]]:
    """Return (name, distinct values among the runs) of commit, device, versions of packages, …"""
    run_tags = [*(parent.tags for parent in frame.parents), *frame.trials["tags"]]

    def join_values(name: str) -> str:
        """Write the distinct values of a tag among the runs."""
        return ", ".join(sorted({tags[name] for tags in run_tags if tags.get(name)}))

    names = sorted({name for tags in run_tags for name in tags if name.startswith(VERSION)})
    rows = {label: join_values(tag) for label, tag in TAGS.items()}
    rows["Versions"] = ", ".join(f"{n.removeprefix(VERSION)} {join_values(n)}" for n in names)
    rows["Parent runs"] = ", ".join(parent.run_id for parent in frame.parents)
    return [(name, value) for name, value in rows.items() if value]


def summarize_studies(frame: Frame) -> list[dict[str, Any]]:
    """Return for each study its name, design, sampler, numbers of trials by state, and time."""
    studies = []
    for name in frame.study_order:
        rows, spec = frame.cells[frame.cells["study"] == name], frame.get_declared_study(name)
        done, failed = (int((rows["status"] == status).sum()) for status in ("done", "failed"))
        sampler = spec.get("sampler", "tpe")
        sampler_name = sampler["class"] if isinstance(sampler, dict) else sampler
        search = f"{sampler_name}, {spec.get('trials')} trials"
        study = {
            "name": name,
            "design": frame.get_design(name),
            "sampler": search if "trials" in spec else "",
            "cells": rows["cell"].nunique(),
            "trials": len(rows),
            "done": done,
            "failed": failed,
            "other": len(rows) - done - failed,
            "epochs": int(rows["epochs"].sum()) if "epochs" in rows else 0,
            "time": _format_duration(float(rows["seconds"].sum()) if "seconds" in rows else 0.0),
        }
        studies.append(study)
    return studies


def _format_duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
