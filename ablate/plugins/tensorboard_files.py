"""Write the trials of a sweep to event files of TensorBoard, by tensorboardX, which Ray Tune needs.

The content of a file is a function of the ledger. While a trial runs, its content only grows, so
that the file's length says what was written; also half a record of a killed process is completed.
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ablate.tracking import payload
from ablate.tracking.tracker import OPTION, TRACKERS, TrialRun, TrialTracker
from trainables.words.errors import ConfigError

FOLDER = "tensorboard"  # in the output folder
FILE = "events.out.tfevents.0.ablate"  # TensorBoard reads files with "tfevents" in their name
LONGEST = 120  # characters of a folder's name


@TRACKERS.register("tensorboard")
class TensorBoardTracker(TrialTracker):
    """Event files in OUT/tensorboard/SWEEP/STUDY/CELL/SEED, one for each cell and seed."""

    name, kind = "TensorBoard", "tensorboard"

    def check_usable(self) -> None:
        """Raise ConfigError if the option is more than the tracker's name."""
        if self.store != FOLDER:
            raise ConfigError(OPTION, f"{self.store!r} is no tracker", f"Write {FOLDER}")

    def write(self, run: TrialRun) -> None:
        """Append to the file of each cell that the trial fills what the file lacks."""
        content = b"".join(map(encode_record, iterate_events(run)))
        for path in self._list_files(run.sweep, run.cells):
            existing = path.read_bytes() if path.exists() else b""
            if not content.startswith(existing):  # the trial was started again
                path.unlink()
                existing = b""
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(content[len(existing) :])

    def has_run(self, sweep: payload.Row, cells: list[dict[str, Any]]) -> bool:
        return all(path.exists() for path in self._list_files(sweep, cells))

    def close(self) -> None:
        """Leave all files as they are, because none is open."""

    def _list_files(self, sweep: payload.Row, cells: list[dict[str, Any]]) -> list[Path]:
        """Return the path of the event file of each cell, which may not exist yet."""
        folder, paths = self.out / FOLDER / f"{sweep['name']}-{sweep['sweep_id']}", []
        for cell in cells:
            fold = f"-fold{cell['fold']}" if "fold" in cell else ""
            study, name = escape_name(cell["study"]), escape_name(cell["cell"])
            paths.append(folder / study / name / f"seed{cell['seed']}{fold}" / FILE)
        return paths


def escape_name(text: str) -> str:
    """Return a folder's name for any text; different texts have different names."""
    name = quote(text, safe=" ,=+()").replace(".", "%2E", text.startswith("."))
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}~{zlib.crc32(text.encode()):08x}"


def iterate_events(run: TrialRun) -> Iterator[bytes]:
    """Yield a trial's events: its configuration as text, its epochs, and its final metrics."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import text

    trial, created = run.trial, run.trial["created"]
    config = yaml.safe_dump(trial["config"], sort_keys=False, allow_unicode=True, width=100)
    yield Event(wall_time=created, file_version="brain.Event:2").SerializeToString()
    summary = text("config", f"```\n{config}```")
    yield Event(wall_time=created, summary=summary).SerializeToString()
    points = payload.iterate_epoch_metrics(trial, run.epochs)
    if trial["status"] in ("done", "failed"):  # any other trial may go on
        points = chain(points, run.final)
    for (time, step), group in groupby(points, key=lambda point: point[2:]):
        values = [Summary.Value(tag=key, simple_value=value) for key, value, *_ in group]
        event = Event(wall_time=time / 1000, step=step, summary=Summary(value=values))
        yield event.SerializeToString()


def encode_record(data: bytes) -> bytes:
    """Return a record of an event file: length, checksum, data, checksum."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
    return length + sums[0] + data + sums[1]
