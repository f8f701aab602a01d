"""Show the progress of a sweep: one row for each study.

A terminal shows a live table. Otherwise a line for each study is printed every half minute and at
its end. Reasons of failures are printed at once. The same lines go to the log file of the sweep.
Only the driver's main thread takes snapshots; drawing uses the last one.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TextIO

from ablate.engine.driver_status import Node, StudyRow, format_driver, format_duration
from ablate.engine.signals import ignore_closed_terminal
from ablate.sweep.dispatch import JobScheduler
from trainables.evaluation.metric_name import MetricName
from trainables.machine.texts import escape_control_characters

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

SNAPSHOT_SECONDS = 0.5
SNAPSHOT_SHARE = 0.02  # of the driver's time: a snapshot looks at every cell
LINE_SECONDS = 30.0
TINY = 1e-9
REASONS, REASON_LENGTH = 10, 300  # told while the sweep runs; its end counts them all


@dataclass
class NodeList:
    """The machines on which trials can run.

    Attributes:
        known: (id, name, slots) of each machine.
        places: trial → id of the machine that last sent its events.
    """

    known: list[tuple[str, str, int]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def update(self, machines: Iterable[Sequence[Any]]) -> None:
        """Replace the list by the machines that have slots now."""
        self.known = [(str(node), str(name), int(slots)) for node, name, slots in machines if slots]

    @property
    def slots(self) -> int:
        return sum(slots for _, _, slots in self.known)

    def list_nodes(self, trials: Sequence[str]) -> list[Node]:
        """Return the machines with the running trials of each.

        Machines with equal names get a part of their id.
        """
        names = Counter(name for _, name, _ in self.known)
        self.places = {trial: self.places[trial] for trial in trials if trial in self.places}
        if len(self.known) == 1:  # a trial is nowhere else, and its first epoch may be long
            ((node, _, slots),) = self.known
            self.places |= dict.fromkeys(trials[:slots], node)
        return [
            Node(
                name=name if names[name] == 1 else f"{name} {node[:6]}",
                slots=slots,
                trials=[trial for trial in trials if self.places.get(trial) == node],
            )
            for node, name, slots in self.known
        ]


def build_study_rows(
    dispatch: JobScheduler, parallel: float, elapsed: float = 0.0
) -> list[StudyRow]:
    """Return one row for each study.

    eta = pending trials · elapsed / ended trials, where running trials count as half, scaled by the
    mean duration of the study's trials over that of all trials; None until a trial has ended.

    Args:
        elapsed: seconds since the first trial could start.
    """
    progression, walls = dispatch.progression, dispatch.walls
    all_walls = [wall for study_walls in walls.values() for wall in study_walls]
    working = set(find_running(dispatch, parallel))
    table = []
    for name, state in progression.studies.items():
        done = failed = running = 0
        by_idx: dict[int, list[float]] = {}
        objective = progression.plan.list_objectives(name)[0]
        split, metric = MetricName.parse(objective.metric)
        for cell in state.cells:
            fact = progression.facts[cell.trial_id]
            if cell.error or fact.status == "failed":
                failed += 1
            elif fact.is_settled(progression.list_readable_splits(cell), cell.metrics):
                done += 1
                value = fact.evaluations.get(split, {}).get(metric)
                if value is not None:
                    by_idx.setdefault(cell.idx, []).append(value)
            elif cell.trial_id in working:
                running += 1
        best = max if objective.direction == "maximize" else min
        remaining = state.size - done - failed
        eta = None if remaining else 0.0
        if remaining and all_walls:
            share = fmean(walls.get(name) or all_walls) / max(fmean(all_walls), TINY)
            pace = elapsed / (len(all_walls) + len(working) / 2)
            eta = max(0.0, remaining - running / 2) * pace * share
        note = state.blocked or ("waits for its centre" if not state.cells else "")
        table.append(
            StudyRow(
                name,
                state.size,
                len(state.cells),
                done,
                running,
                failed,
                best(map(fmean, by_idx.values()), default=None),
                eta,
                note if remaining else "",
            )
        )
    return table


def find_running(dispatch: JobScheduler, parallel: float) -> list[str]:
    """Return the running trials, oldest first, without those that still wait for a worker."""
    return list(islice(dispatch.running, max(1, int(parallel))))


class ProgressDisplay:
    """Show the progress of a job scheduler.

    Args:
        parallel: how many trials run at once.
        log: file that receives each line with the time.
        stream: receives lines if it is not a terminal, else a live table.
        tell: receives each snapshot: rows, running trials, `parallel`, machines.
    """

    def __init__(
        self,
        dispatch: JobScheduler,
        parallel: float,
        log: Path,
        stream: TextIO | None = None,
        tell: Callable[[list[StudyRow], list[str], float, list[Node]], None] = lambda *_: None,
    ) -> None:
        self.dispatch, self.parallel, self.tell = dispatch, parallel, tell
        self.stream = stream or sys.stdout
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("a", encoding="utf-8")
        self.machines = NodeList()
        self._begun = self._told = time.monotonic()
        self._rows: list[StudyRow] = []
        self._update_rows()
        self._next = self._told + SNAPSHOT_SECONDS
        self._ended = {row.study for row in self._rows if row.is_finished}
        self._reasons: dict[str, str] = {}  # of failures: reason → with the trial
        dispatch.report_failure = self.report_failure
        self._live: Live | None = None
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream)
            self._live = Live(
                get_renderable=self.format_table, console=console, refresh_per_second=2
            )
            self._live.start()

    def refresh(self) -> None:
        """Take a snapshot and print it, at most twice a second; the driver calls this in its
        loop."""
        now = time.monotonic()
        if now < self._next:
            return
        self.parallel = self.machines.slots or self.parallel  # nodes come and go
        self._update_rows()
        took = time.monotonic() - now
        self._next = now + min(max(SNAPSHOT_SECONDS, took / SNAPSHOT_SHARE), LINE_SECONDS)
        due = [row for row in self._rows if row.is_finished and row.study not in self._ended]
        self._ended |= {row.study for row in due}
        if now - self._told >= LINE_SECONDS:
            self._told = now
            due += [row for row in self._rows if row.running]
            self.print_line(self.format_headline(), quiet_on_terminal=True)
        for row in due:
            self.print_line(format_driver(row), quiet_on_terminal=True)

    def _update_rows(self) -> None:
        self._rows = build_study_rows(self.dispatch, self.parallel, time.monotonic() - self._begun)
        busy = find_running(self.dispatch, self.parallel)
        self.tell(self._rows, busy, self.parallel, self.machines.list_nodes(busy))

    def print_line(self, text: str, *, quiet_on_terminal: bool = False) -> None:
        """Write one line to the log file and to the stream."""
        text = escape_control_characters(text)
        self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._log.flush()
        with ignore_closed_terminal():
            if self._live is None:
                self.stream.write(f"{text}\n")
                self.stream.flush()
            elif not quiet_on_terminal:
                self._live.console.print(text, markup=False)

    def report_failure(self, trial_id: str, reason: str) -> None:
        """Print a new reason why trials failed, up to `REASONS` of them."""
        if reason not in self._reasons and len(self._reasons) < REASONS:
            self._reasons[reason] = f"{reason[:REASON_LENGTH]} (trial {trial_id})"
            self.print_line(self._reasons[reason])

    def format_headline(self) -> str:
        """Return `3 of 4 slots at work on 2 nodes, left about 12:30`."""
        working, all_slots = find_running(self.dispatch, self.parallel), max(1, int(self.parallel))
        count = max(1, len(self.machines.known))
        nodes = f"{count} node{'' if count == 1 else 's'}"
        etas = [row.eta for row in self._rows if row.eta is not None]
        remaining = (
            f"about {format_duration(sum(etas))}"
            if len(etas) == len(self._rows)
            else "not known yet"
        )
        return f"{len(working)} of {all_slots} slots at work on {nodes}, left {remaining}"

    def close(self) -> None:
        self._update_rows()
        if self._live is not None:
            with ignore_closed_terminal():
                self._live.stop()
        for row in self._rows:
            self.print_line(format_driver(row), quiet_on_terminal=True)
        self._log.close()

    def format_table(self) -> Table:
        from rich.table import Table
        from rich.text import Text  # as it stands: `[a]` in a name is no markup

        table = Table(box=None, pad_edge=False, title_justify="left", caption_justify="left")
        table.title = Text(self.format_headline())
        for first in list(self._reasons.values())[:1]:
            table.caption = Text(escape_control_characters(f"first failure: {first}"))
        for column in ("study", "done", "running", "failed", "best", "left", ""):
            table.add_column(column, justify="left" if column in ("study", "") else "right")
        for row in self._rows:
            best = "-" if row.best is None else f"{row.best:.4f}"
            counts = f"{row.done}/{row.size}", str(row.running), str(row.failed)
            texts = row.study, *counts, best, format_duration(row.eta), row.note
            table.add_row(*(Text(escape_control_characters(text)) for text in texts))
        return table
