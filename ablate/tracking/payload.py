"""What the ledger's rows become in MLflow: tags, parameters, metrics. Pure functions.

Everything is a function of the ledger alone, time stamps included, so that writing a run a second
time changes nothing: MLflow drops a metric that equals one it has in key, value, step and time.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ablate.values.paths import leaves
from trainables.evaluation.metric_name import MetricName

TAG_LIMIT = 5000  # MLflow's tag columns end at 8,000 characters, on some databases at 5,000
PARAM_LIMIT = 6000
STATUS = {"done": "FINISHED", "failed": "FAILED", "partial": "FINISHED", "interrupted": "KILLED"}

Row = Mapping[str, Any]


def compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def flatten(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Nested config → `("optimizer.lr", "0.1")`, …; lists as JSON, cut at MLflow's limit."""
    for name, value in leaves(config).items():
        text = value if isinstance(value, str) else json.dumps(value)
        yield name, text[:PARAM_LIMIT]


def in_pieces(name: str, text: str) -> dict[str, str]:
    """A long value over several tags: `name`, `name.1`, …; joined again by the reader."""
    pieces = [text[at : at + TAG_LIMIT] for at in range(0, len(text), TAG_LIMIT)] or [""]
    return {name if i == 0 else f"{name}.{i}": piece for i, piece in enumerate(pieces)}


def provenance_tags(provenance: Mapping[str, Any] | None) -> dict[str, str]:
    """git_commit, git_dirty, versions {package: version} → `ablate.git_commit`, …"""
    tags: dict[str, str] = {}
    for key, value in (provenance or {}).items():
        if key == "versions":
            tags |= {f"ablate.version.{name}": str(version) for name, version in value.items()}
        elif isinstance(value, str | int | float | bool):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            tags[f"ablate.{key}"] = text[:TAG_LIMIT]
    return tags


def cells_by_trial(cells: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """Trial → the cells it fills, as the tag `ablate.cells` lists them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        cell_facts = {key: cell[key] for key in ("study", "cell", "coords", "idx")}
        if cell["fold"] is not None:
            cell_facts["fold"] = cell["fold"]
        found.setdefault(cell["trial_id"], []).append(cell_facts)
    return found


def ledger_tag(sweep: Row) -> str:
    """Which ledger wrote a run: several machines may run one sweep into one tracking server.

    The time at which the ledger first saw the sweep; unlike a path it survives a move.
    """
    return f"{sweep['created']:.6f}"


def parent_tags(sweep: Row, driver: str) -> dict[str, str]:
    return {
        **provenance_tags(sweep["provenance"]),
        "ablate.ledger": ledger_tag(sweep),
        "ablate.kind": "sweep",
        "ablate.sweep_id": sweep["sweep_id"],
        "ablate.driver": driver,
        "mlflow.runName": sweep["name"],
    }


def trial_tags(
    trial: Row, sweep: Row, parent_run_id: str, cells: list[dict[str, Any]]
) -> dict[str, str]:
    """All tags of a child run. While a trial runs, `ablate.status` is "running".

    `study` and `cell` are to group by: of the first of its cells. Commit and versions are the
    parent's alone.
    """
    split = trial["config"].get("data", {}).get("split", {})
    protocol = split.get("protocol", "held_out")
    names = sorted({f"{cell['study']}/{cell['cell']}" for cell in cells})
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    name = f"{names[0]}{more} s{trial['seed']}" if names else trial["trial_id"]
    return {
        **provenance_tags(trial["provenance"]),
        **({key: str(cells[0][key])[:TAG_LIMIT] for key in ("study", "cell")} if cells else {}),
        "mlflow.parentRunId": parent_run_id,
        "mlflow.runName": name[:250],
        "ablate.kind": "trial",
        "ablate.sweep_id": sweep["sweep_id"],
        "ablate.ledger": ledger_tag(sweep),
        "ablate.trial_id": trial["trial_id"],
        "ablate.config_hash": trial["config_hash"],
        "ablate.seed": str(trial["seed"]),
        "ablate.protocol": protocol,
        "ablate.status": trial["status"],
        "ablate.reason": (trial["reason"] or "")[:TAG_LIMIT],
        **in_pieces("ablate.cells", compact(cells)),
    }


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def epoch_metrics(trial: Row, epochs: Iterable[Row]) -> Iterator[tuple[str, float, int, int]]:
    """(key, value, time in ms, step) of every reported metric; the step is the epoch.

    The time is that of the trial's creation plus the training time so far, so that it is the
    same whenever it is written.
    """
    start = milliseconds(trial["created"])
    for row in epochs:
        at = start + milliseconds(row["seconds"] or 0.0)
        for key, value in row["metrics"].items():
            if value is not None:
                yield key, float(value), at, row["epoch"]


def final_metrics(
    trial: Row, evaluations: Mapping[str, Mapping[str, Any]], recorded: Mapping[str, float]
) -> Iterator[tuple[str, float, int, int]]:
    """`final/<split>/<metric>`, `final/best_epoch`, `final/seconds`, at the best epoch's step.

    The time is the trial's end, and an evaluation's own (`recorded`) for what it found: of two
    values at one step MLflow shows the one of the later time.
    """
    ended = trial["ended"] or trial["created"]
    step = trial["best_epoch"] or 0
    for split, metrics in evaluations.items():
        at = milliseconds(recorded.get(split, ended))
        for key, value in metrics.items():
            if value is not None:
                yield f"final/{MetricName(split, key)}", float(value), at, step
    at = milliseconds(ended)
    for key in ("best_epoch", "epochs", "steps", "seconds"):
        if trial[key] is not None:
            yield f"final/{key}", float(trial[key]), at, step


def checksum(trial: Row, evaluations: Mapping[str, Any], cells: list[dict[str, Any]]) -> int:
    """What a run's end says, as one number > 0: it changes when the run must be written again.

    An evaluation added later, a further cell, or another end change it.
    """
    state = [trial["status"], trial["reason"], trial["ended"], evaluations, cells]
    return zlib.crc32(compact(state).encode()) + 1


def sweep_document(sweep: Row, cells: Iterable[Row]) -> dict[str, Any]:
    """`sweep.json`: the resolved spec, with what the report reads lifted to the top.

    The planned cells are in it, so that a report shows those that never ran as missing.
    """
    spec = dict(sweep["spec"])
    provenance = dict(sweep["provenance"] or {})
    studies = spec.get("studies") or {}
    return {
        "sweep_id": sweep["sweep_id"],
        "name": sweep["name"],
        "title": spec.get("title") or "",
        "created": sweep["created"],
        "objective": spec.get("objective", "val/map_at_r"),
        "studies": studies,
        "study_order": provenance.pop("study_order", None) or list(studies),
        "report": spec.get("report") or {},
        "provenance": provenance,
        "spec": spec,
        "cells": [
            {
                key: cell[key]
                for key in ("study", "cell", "seed", "trial_id", "coords", "idx", "fold")
                if key != "fold" or cell[key] is not None
            }
            for cell in cells
        ],
    }
