"""What TensorBoard's own reader, and a reader of W&B's offline files, find of a sweep."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.ledger.ledger import Ledger

Points = dict[str, list[tuple[int, float]]]  # key → (step, value), in order


def read_events(folder: Path) -> Points:
    """All scalars of a folder's event files, by TensorBoard's reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        key: [(event.step, event.value) for event in reader.Scalars(key)]
        for key in reader.Tags()["scalars"]
    }


def iterate_records(path: Path) -> Iterator[Any]:
    """The records of a W&B file: LevelDB's log format after a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # the rest of a block
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def read_offline_run(out: Path, trial_id: str) -> tuple[Points, dict[str, Any], Any]:
    """History, summary and description of a trial's only offline run."""
    (path,) = (out / "wandb").glob(f"offline-run-*-{trial_id}/run-{trial_id}.wandb")
    history: Points = {}
    summary: dict[str, Any] = {}
    run = None
    for record in iterate_records(path):
        if record.HasField("run"):
            run = record.run
        for item in record.summary.update:
            summary[item.key or item.nested_key[0]] = json.loads(item.value_json)
        row = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
        for key, value in row.items():
            if not key.startswith("_"):
                history.setdefault(key, []).append((row["_step"], value))
    return history, summary, run


def assert_equal_to_ledger(out: Path, sweep_id: str, *, wandb: bool = True) -> int:
    """Each trial of the ledger is complete, no point twice; return the number of trials."""
    with Ledger(out / "ledger.sqlite") as ledger:
        cells = ledger.list_cells(sweep_id)
        (folder,) = (out / "tensorboard").glob(f"*-{sweep_id}")
        assert len(list(folder.rglob("*tfevents*"))) == len(cells)
        for cell in cells:
            trial_id = cell["trial_id"]
            expected: Points = {}
            for row in ledger.list_epochs(trial_id):
                for key, value in row["metrics"].items():
                    expected.setdefault(key, []).append((row["epoch"], value))
            final = {
                f"final/{split}/{key}": value
                for split, metrics in ledger.get_evaluations(trial_id).items()
                for key, value in metrics.items()
            }
            found = read_events(folder / cell["study"] / cell["cell"] / f"seed{cell['seed']}")
            last = {key: found.pop(key)[0][1] for key in list(found) if key.startswith("final/")}
            assert found == {
                key: [(step, np.float32(value)) for step, value in points]
                for key, points in expected.items()
            }
            assert {key: last[key] for key in final} == {k: np.float32(v) for k, v in final.items()}
            if wandb:
                history, summary, _ = read_offline_run(out, trial_id)
                assert history == expected
                assert summary.items() >= final.items()
    return len({cell["trial_id"] for cell in cells})
