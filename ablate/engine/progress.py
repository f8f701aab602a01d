"""Show the progress of a sweep: one row for each study.

A terminal shows a live table. Otherwise a line for each running study is printed every half minute,
and one for each study at the end. Reasons of failures are printed at once. The same lines go to the
log file of the sweep.
Only the driver's main thread takes snapshots; drawing uses the last one.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TextIO

from ablate.engine.driver_status import Node, StudyRow, format_duration, format_study_row
from ablate.sweep.job_queue import JobQueue
from ablate.sweep.progression import Progression
from trainables.words.metrics import MetricName
from trainables.words.texts import escape_control_characters

if TYPE_CHECKING:
    from rich.table import Table

SNAPSHOT_SECONDS = 0.5
SNAPSHOT_SHARE = 0.02  # most of the driver's time for snapshots, which look at every cell
LINE_SECONDS = 30.0
MOST_REASONS, REASON_LENGTH = 10, 300  # printed during the run; its end counts all of them


@dataclass
class NodeList:
    """The machines on which trials can run.

    Attributes:
        nodes: (id, name, slots) of each machine.
        node_by_trial: trial → id of the machine that last sent its events.
    """

    nodes: list[tuple[str, str, int]] = field(default_factory=list)
    node_by_trial: dict[str, str] = field(default_factory=dict)

    def update(self, machines: Iterable[Sequence[Any]]) -> None:
        """Replace the list by the machines that have slots now."""
        self.nodes = [(str(node), str(name), int(slots)) for node, name, slots in machines if slots]

    @property
    def slots(self) -> int:
        return sum(slots for _, _, slots in self.nodes)

    def list_nodes(self, running: Sequence[str]) -> list[Node]:
        """Return each machine with the `running` trials on it, and forget all other trials."""
        # a single machine has all running trials, even those that have sent no event yet
        if len(self.nodes) == 1:
            [(only_node, _, slots)] = self.nodes
            self.node_by_trial = dict.fromkeys(running[:slots], only_node)
        known, name_counts = self.node_by_trial, Counter(name for _, name, _ in self.nodes)
        self.node_by_trial = {trial: known[trial] for trial in running if trial in known}
        return [
            Node(
                name=name if name_counts[name] == 1 else f"{name} {node[:6]}",  # equal names
                slots=slots,
                trials=[trial for trial, where in self.node_by_trial.items() if where == node],
            )
            for node, name, slots in self.nodes
        ]


def build_study_rows(job_queue: JobQueue, parallel: int, elapsed: float = 0.0) -> list[StudyRow]:
    """Return a row of progress for each study, when `parallel` trials run at once.

    The remaining seconds `eta` are None until a trial has ended. Then they are `elapsed` per ended
    trial, times pending trials, times the study's mean duration of a trial over that of all
    studies. A running trial counts as half ended.

    Args:
        elapsed: seconds since the first trial could start.
    """
    running = set(list_running_trials(job_queue, parallel))
    durations = [seconds for jobs in job_queue.walls.values() for seconds in jobs]  # of ended jobs
    rows = []
    for name, state in job_queue.progression.studies.items():
        row = count_cells(job_queue.progression, name, running)
        pending = row.size - row.done - row.failed
        if pending == 0:
            row.eta = 0.0
        elif durations:
            seconds_per_trial = elapsed / (len(durations) + len(running) / 2)
            relative_duration = fmean(job_queue.walls.get(name) or durations) / fmean(durations)
            row.eta = max(0.0, pending - row.running / 2) * seconds_per_trial * relative_duration
        row.note = state.blocked or ("" if state.cells else "waits for results of other studies")
        rows.append(row)
    return rows


def count_cells(progression: Progression, name: str, running: set[str]) -> StudyRow:
    """Count a study's done, failed and running cells, and find the best mean over seeds."""
    state = progression.studies[name]
    row = StudyRow(name, state.size, len(state.cells))
    objective = progression.plan.list_objectives(name)[0]  # the first one decides
    split, metric = MetricName.parse(objective.metric)
    values: dict[int, list[float]] = {}  # index of a cell → its objective at each seed
    for cell in state.cells:
        fact = progression.facts[cell.trial_id]  # what the ledger says of the cell's trial
        if cell.error or fact.status == "failed":
            row.failed += 1
        elif fact.is_settled(progression.list_readable_splits(cell), cell.metrics):
            row.done += 1
            value = fact.evaluations.get(split, {}).get(metric)
            if value is not None and not progression.has_exceeded_limits([cell]):
                values.setdefault(cell.idx, []).append(value)
        elif cell.trial_id in running:
            row.running += 1
    best = max if objective.direction == "maximize" else min
    row.best = best(map(fmean, values.values()), default=None)
    return row


def list_running_trials(job_queue: JobQueue, parallel: int) -> list[str]:
    """Return the running trials, oldest first, without those that still wait for a worker."""
    return list(islice(job_queue.running, max(1, parallel)))


class ProgressDisplay:
    """Show the progress of a job scheduler.

    Args:
        parallel: how many trials run at once.
        log: file that receives each line with the time.
        stream: receives lines if it is not a terminal, else a live table.
        publish: receives each snapshot: rows, running trials, `parallel`, machines.
    """

    def __init__(
        self,
        job_queue: JobQueue,
        parallel: int,
        log: Path,
        stream: TextIO | None = None,
        publish: Callable[[list[StudyRow], list[str], int, list[Node]], None] = lambda *_: None,
    ) -> None:
        """Open the log and take a first snapshot; in a terminal, start the live table."""
        from rich.console import Console
        from rich.live import Live

        self.job_queue, self.parallel, self.publish = job_queue, parallel, publish
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("a", encoding="utf-8")
        self.machines = NodeList()
        self._start = self._last_lines = time.monotonic()  # time of the last printed lines
        self._rows: list[StudyRow] = []
        self._take_snapshot()
        self._next_snapshot = self._start + SNAPSHOT_SECONDS
        self._reasons: set[str] = set()  # reasons of failures, each of which was printed once
        job_queue.report_failure = self.report_failure
        stream = stream or sys.stdout
        # with FORCE_COLOR set, rich would otherwise take a pipe for a terminal
        self._console = console = Console(
            file=stream, force_terminal=stream.isatty(), markup=False, emoji=False, highlight=False
        )
        self._live = Live(get_renderable=self.format_table, console=console, refresh_per_second=2)
        if self._console.is_terminal:
            self._live.start()

    def refresh(self) -> None:
        """Update the numbers at most twice a second; every half minute, print them as lines."""
        now = time.monotonic()
        if now < self._next_snapshot:
            return
        self.parallel = self.machines.slots or self.parallel  # nodes of a cluster come and go
        self._take_snapshot()
        # delay the next snapshot if this one was slow: snapshots take a small share of the time
        delay = (time.monotonic() - now) / SNAPSHOT_SHARE
        self._next_snapshot = now + min(max(SNAPSHOT_SECONDS, delay), LINE_SECONDS)
        if now - self._last_lines >= LINE_SECONDS:
            self._last_lines = now
            self.print_line(self.format_headline(), in_table=True)
            for row in self._rows:
                if row.running:
                    self.print_line(format_study_row(row), in_table=True)

    def _take_snapshot(self) -> None:
        elapsed = time.monotonic() - self._start
        self._rows = build_study_rows(self.job_queue, self.parallel, elapsed)
        running = list_running_trials(self.job_queue, self.parallel)
        self.publish(self._rows, running, self.parallel, self.machines.list_nodes(running))

    def print_line(self, text: str, *, in_table: bool = False) -> None:
        """Write a line to the log, and to the screen unless a live table shows it (`in_table`)."""
        text = escape_control_characters(text)
        self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._log.flush()
        if not self._console.is_terminal:
            self._console.file.write(f"{text}\n")
            self._console.file.flush()
        elif not in_table:
            with suppress(OSError):  # the terminal was closed
                self._console.print(text, soft_wrap=True)

    def report_failure(self, trial_id: str, reason: str) -> None:
        """Print a new reason why trials failed, up to `MOST_REASONS` of them."""
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            self.print_line(f"{reason[:REASON_LENGTH]} (trial {trial_id})")

    def format_headline(self) -> str:
        """Summarize all studies: `3 of 4 slots in use, nodes: 2, left: about 12 min 30 s`."""
        busy = len(list_running_trials(self.job_queue, self.parallel))
        etas = [row.eta for row in self._rows if row.eta is not None]
        all_known = len(etas) == len(self._rows)
        remaining = f"about {format_duration(sum(etas))}" if all_known else "not known yet"
        nodes = max(1, len(self.machines.nodes))
        return f"{busy} of {self.parallel} slots in use, nodes: {nodes}, left: {remaining}"

    def close(self) -> None:
        """Stop the live table, print a last line for each study, and close the log file."""
        self._take_snapshot()
        with suppress(OSError):  # the terminal was closed
            self._live.stop()
        for row in self._rows:
            self.print_line(format_study_row(row), in_table=True)
        self._log.close()

    def format_table(self) -> "Table":
        """Return a table with a row for each study, from the last snapshot."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, min_width=60, title_justify="left")
        table.title = self.format_headline()  # wrapped at the table's width
        for column in ("study", "done", "running", "failed", "best", "left", ""):
            table.add_column(column, justify="left" if column in ("study", "") else "right")
        for row in self._rows:
            best = "-" if row.best is None else f"{row.best:.4f}"
            counts = f"{row.done}/{row.size}", str(row.running), str(row.failed)
            texts = row.study, *counts, best, format_duration(row.eta), row.note
            table.add_row(*map(escape_control_characters, texts))
        return table
