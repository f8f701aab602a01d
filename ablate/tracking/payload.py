"""What the ledger's rows become in MLflow: tags, parameters, metrics. Pure functions.

Everything is a function of the ledger alone, time stamps included, so that writing a run a second
time changes nothing: MLflow drops a metric that equals one it has in key, value, step and time.
"""

import json
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from trainables.words.canonical import to_canonical_json
from trainables.words.metrics import MetricName
from trainables.words.paths import flatten_paths
from trainables.words.secrets import FLAT

TAG_LIMIT = 5000  # MLflow's tag columns end at 8,000 characters, on some databases at 5,000
PARAM_LIMIT = 6000
STATUS = {"done": "FINISHED", "failed": "FAILED", "partial": "FINISHED", "interrupted": "KILLED"}

NOTE = "mlflow.note.content"  # the description on MLflow's page, in Markdown
EXPERIMENT_NOTE = """\
[Best trials of each study]({0}) · [learning curves of these trials]({0}&compareRunsMode=CHART)

- A row with a plus sign is a sweep; it contains its trials, each one training run. A trial is named
  `STUDY/CELL sSEED` (`sSEED.FOLD`); `+1` says that it serves one cell more.
- The filter `tags.study = 'STUDY'` shows one study. `{1}` shows the best trials of all studies, and
  `tags.best_of LIKE '%(STUDY)%'` those of one, as of the end of the last run. To see trials without
  their sweep, sort by *Run Name*.
"""
BEST_FILTER = "tags.best_of != ''"

Point = tuple[str, float, int, int]  # key, value, time in ms, step: `MlflowClient.log_batch`'s
Row = Mapping[str, Any]
Defaults = Mapping[str, Mapping[str, Any]]


def flatten_config(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a nested config as `("optimizer.lr", "0.1")`, …; lists are JSON, cut at the limit."""
    for name, value in flatten_paths(config).items():
        text = value if isinstance(value, str) else json.dumps(value)
        yield name, text[:PARAM_LIMIT]


def choose_parameters(config: Row, defaults: Defaults, varied: Container[str]) -> dict[str, str]:
    """Return a trial's MLflow parameters: settings that vary in the sweep or are not the default.

    Args:
        defaults: "" → settings of every trial by dotted path; "loss.NAME", "method.NAME",
            "data.NAME" → options of this component.
        varied: dotted paths of settings that differ between the sweep's trials.
    """
    # take the general defaults, and for options those of the trial's loss, method and data
    component_sections = ("loss", "method", "data")
    trial_defaults = {
        path: value
        for path, value in defaults.get("", {}).items()
        if path.endswith(".name") or path.partition(".")[0] not in component_sections
    }
    for section in component_sections:
        trial_defaults |= defaults.get(f"{section}.{(config.get(section) or {}).get('name')}", {})
    default_texts = dict(flatten_config(trial_defaults))
    return {
        path: text
        for path, text in flatten_config(config)
        if path in varied or default_texts.get(path) != text
    }


def split_long_tag(name: str, text: str) -> dict[str, str]:
    """Split a long value over the tags `name`, `name.1`, …, which the reader joins."""
    starts = range(0, max(len(text), 1), TAG_LIMIT)
    pieces = [text[start : start + TAG_LIMIT] for start in starts]
    return {name if i == 0 else f"{name}.{i}": piece for i, piece in enumerate(pieces)}


def build_provenance_tags(provenance: Row | None) -> dict[str, str]:
    """Return what made a result (commit, command, versions) as tags `ablate.git_commit`, ….

    A package's version becomes the tag `ablate.version.<package>`.
    """
    facts = dict(provenance or {})
    versions = facts.pop("versions", {}).items()
    tags = {f"ablate.version.{name}": str(version) for name, version in versions}
    for key, value in facts.items():
        if isinstance(value, str | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)  # "true"
            tags[f"ablate.{key}"] = text[:TAG_LIMIT]
    return tags


def describe_cells(cells: Iterable[Row], *names: str) -> list[dict[str, Any]]:
    """Return these columns of cells, and `fold` and `infeasible` of those that have one."""
    optional = ("fold", "infeasible")
    rows = [{name: cell.get(name) for name in (*names, *optional)} for cell in cells]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def build_ledger_tag(sweep: Row) -> str:
    """Identify a ledger by when it first recorded the sweep, since its file may be moved."""
    return f"{sweep['created']:.6f}"


def build_parent_tags(sweep: Row, driver: str) -> dict[str, str]:
    """Return all tags of a sweep's run."""
    return {
        **build_provenance_tags(sweep["provenance"]),
        "ablate.ledger": build_ledger_tag(sweep),
        "ablate.kind": "sweep",
        "ablate.sweep_id": sweep["sweep_id"],
        "ablate.driver": driver,
        "mlflow.runName": sweep["name"],
    }


def build_run_name(trial: Row, cells: list[dict[str, Any]]) -> str:
    """Return the name of a trial's run: first cell, number of further cells, seed, and fold."""
    fold = f".{cells[0]['fold']}" if cells and "fold" in cells[0] else ""
    names = sorted({f"{cell['study']}/{cell['cell']}" for cell in cells})
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    return f"{names[0]}{more} s{trial['seed']}{fold}" if names else str(trial["trial_id"])


def build_experiment_note(experiment_id: str) -> str:
    """Describe in Markdown how to read an experiment's runs, with links to views of them."""
    page = f"#/experiments/{experiment_id}/runs?{FLAT}&searchFilter={quote(BEST_FILTER)}"
    return EXPERIMENT_NOTE.format(page, BEST_FILTER)


def build_trial_note(trial: Row, cells: Iterable[Row]) -> str:
    """Describe in Markdown the cells that a trial fills, with their settings."""
    lines = [f"`ablate explain {trial['trial_id']}` says why this trial exists.", ""]
    for cell in cells:
        settings = ", ".join(f"{path} = {value}" for path, value in cell.get("coords", {}).items())
        lines.append(f"- study `{cell['study']}`, cell `{cell['cell']}`: {settings}")
    return "\n".join(lines)[:TAG_LIMIT]


def build_result_tags(trial: Row) -> dict[str, str]:
    """Return the tags of a trial that reports read: its provenance and protocol."""
    split = trial["config"].get("data", {}).get("split", {})
    protocol = {"ablate.protocol": split.get("protocol", "held_out")}
    return build_provenance_tags(trial["provenance"]) | protocol


def build_trial_tags(
    trial: Row, sweep: Row, parent_run_id: str, cells: list[dict[str, Any]]
) -> dict[str, str]:
    """Return all tags of a trial's run, which is a child of the sweep's run `parent_run_id`.

    Cells of several studies can share a trial. The tags `study` and `cell`, to group runs by, are
    those of the first of `cells`. `ablate.export` is the path of the model's file below the folder
    in the parent's tag `ablate.folder`.
    """
    export = {"ablate.export": f"trials/{trial['trial_id']}/{trial['export']}"}
    return {
        **build_result_tags(trial),
        **(export if trial["export"] else {}),
        **({key: str(cells[0][key])[:TAG_LIMIT] for key in ("study", "cell")} if cells else {}),
        "mlflow.parentRunId": parent_run_id,
        "mlflow.runName": build_run_name(trial, cells)[:250],
        "ablate.kind": "trial",
        "ablate.sweep_id": sweep["sweep_id"],
        "ablate.ledger": build_ledger_tag(sweep),
        "ablate.trial_id": trial["trial_id"],
        "ablate.config_hash": trial["config_hash"],
        "ablate.seed": str(trial["seed"]),
        "ablate.status": trial["status"],
        "ablate.reason": (trial["reason"] or "")[:TAG_LIMIT],
        **split_long_tag("ablate.cells", to_canonical_json(cells)),
        **split_long_tag("ablate.config", to_canonical_json(trial["config"])),  # which reports read
    }


def to_milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def iterate_epoch_metrics(trial: Row, epochs: Iterable[Row]) -> Iterator[Point]:
    """Yield (key, value, time in ms, step) of each metric of each epoch, for `log_batch`.

    The time is the trial's start plus its training time so far, so it is equal at every call.
    """
    start = to_milliseconds(trial["created"])
    for row in epochs:
        time = start + to_milliseconds(row["seconds"] or 0.0)
        for key, value in row["metrics"].items():
            if value is not None:
                yield key, float(value), time, row["epoch"]


def iterate_final_metrics(
    trial: Row, evaluations: Mapping[str, Row], recorded: Mapping[str, float]
) -> Iterator[Point]:
    """Yield (key, value, time in ms, step) of `final/<split>/<metric>`, `final/best_epoch`, ….

    The step is the best epoch. The time is the trial's end or, if known, the one at which the
    split's evaluation was `recorded`: MLflow shows the latest value of a step.
    """
    ended, step = trial["ended"] or trial["created"], trial["best_epoch"] or 0
    facts = ("best_epoch", "epochs", "steps", "seconds")
    values = [(key, trial[key], ended) for key in facts]
    for split, metrics in evaluations.items():
        logged_at = recorded.get(split, ended)
        values += [(str(MetricName(split, key)), metrics[key], logged_at) for key in metrics]
    for key, value, logged_at in values:
        if value is not None:
            yield f"final/{key}", float(value), to_milliseconds(logged_at), step


def compute_checksum(trial: Row, *contents: object) -> int:
    """Return a checksum > 0 of what a run shows; when it changes, the run is written again."""
    state = [trial["status"], trial["reason"], trial["ended"], *contents]
    return zlib.crc32(to_canonical_json(state).encode()) + 1


def build_sweep_document(
    sweep: Row, cells: Iterable[Row], infeasible: Iterable[Row] = (), looks: Iterable[Row] = ()
) -> dict[str, Any]:
    """Build the artifact `sweep.json`: the resolved spec, what reports read, and all cells.

    Args:
        infeasible: study and excessive needs of the proposals that were not trained.
        looks: study and number of its seeds, for each look at its verdicts before this run.
    """
    spec, provenance = dict(sweep["spec"]), dict(sweep["provenance"] or {})
    studies, counts = spec.get("studies") or {}, dict[str, Counter[str]]()
    for row in infeasible:  # study → number of proposals, in all and by limit
        counts.setdefault(row["study"], Counter()).update(["proposals", *row["needs"]])
    columns = ("study", "cell", "seed", "trial_id", "coords", "idx")
    return {
        "sweep_id": sweep["sweep_id"],
        "name": sweep["name"],
        "title": spec.get("title") or "",
        "created": sweep["created"],
        "objective": spec.get("objective", "val/map_at_r"),
        "studies": studies,
        "study_order": provenance.pop("study_order", None) or list(studies),
        "metrics": provenance.pop("metrics", None) or {},
        "report": spec.get("report") or {},
        "provenance": provenance,
        "spec": spec,
        "cells": describe_cells(cells, *columns),
        **({"infeasible": counts} if counts else {}),
        "looks": [[row["study"], row["seeds"]] for row in looks],
    }
