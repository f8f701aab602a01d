"""One trial in six lines: what became of it, where it belongs, what it was, what it gave, how it
went, where its files are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.engine.presence import duration
from ablate.ledger import queries
from ablate.ledger.records import Records
from ablate.values.terminal import one_line
from trainables.core.trial_folder import CONFIG, EXPORT, LOG, TRIALS, trial_folder

METRICS = ("recall_at_1", "map_at_r", "r_precision", "top_1_accuracy")  # the first to be read
CELLS = 3  # that are named
FILES = (LOG, CONFIG, EXPORT)


def words(records: Records, trial_id: str, out: Path) -> list[str]:
    row = records.trial(trial_id) or {}
    return [
        f"{trial_id}: {row['status']}" + (f", {one_line(row['reason'])}" if row["reason"] else ""),
        f"in:      {_cells(records, trial_id)}",
        f"is:      {_config(row['config'], row['seed'])}",
        f"gave:    {_results(records, row)}",
        f"took:    {_course(records, row)}",
        f"left:    {_files(trial_folder(out / TRIALS, trial_id))}",
    ]


def _cells(records: Records, trial_id: str) -> str:
    cells = queries.cells_filled(records, trial_id)
    named = [f"{cell['name']} ({cell['sweep_id']}) {queries.place(cell)}" for cell in cells]
    more = len(named) - CELLS
    return "; ".join(named[:CELLS]) + (f"; and {more} more cells" if more > 0 else "") or "no sweep"


def _config(config: Mapping[str, Any], seed: int) -> str:
    parts = {part: config.get(part) or {} for part in ("method", "loss", "backbone", "data")}
    names = {part: given.get("name", "?") for part, given in parts.items()}
    rates = (config.get("optimizer") or {}).get("lr")
    mode = parts["backbone"].get("mode")
    side = parts["data"].get("image_size")
    text = f"{names['method']} on {names['loss']}, {names['backbone']}"
    text += f" ({mode})" if mode else ""
    text += f", {names['data']}" + (f" at {side} px" if side else "")
    return f"{text}, seed {seed}" + (f", learning rate {rates:.3g}" if rates else "")


def _results(records: Records, row: Mapping[str, Any]) -> str:
    found = []
    for split, metrics in records.evaluations(row["trial_id"]).items():
        first = [name for name in METRICS if name in metrics] or sorted(metrics)
        found += [f"{split}/{name} {metrics[name]:.4f}" for name in first]
    return ", ".join(found) or "no result"


def _course(records: Records, row: Mapping[str, Any]) -> str:
    epochs = (row["config"].get("training") or {}).get("epochs")
    if row["epochs"] is None:
        reached = max((each["epoch"] for each in records.epochs(row["trial_id"])), default=0)
        text = f"{reached} of {epochs} epochs so far"
    else:
        text = f"{row['epochs']} epochs ({row['steps']} steps) in {duration(row['seconds'])}"
        text += f", the best being {row['best_epoch']}"
    device = (row["provenance"] or {}).get("device")
    text += f", on {device}" if device else ""
    if row["started"]:
        text += f", begun {time.strftime('%Y-%m-%d %H:%M', time.localtime(row['started']))}"
    return text


def _files(folder: Path) -> str:
    there = [name for name in FILES if (folder / name).is_file()]
    return f"{', '.join(there)} in {folder}" if there else f"no files in {folder}"
