"""What all jobs of a sweep have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainables.core.runtime import Runtime
from trainables.core.trial_folder import trial_folder


@dataclass(frozen=True)
class JobSettings:
    """device: "cpu", "cuda" or "cuda:N". threads: of a trial on the CPU. processes: of a trial.
    runner: `module:function`. clean: whether checkpoints go once a trial has ended.
    checkpoint_seconds: least time between checkpoints.
    stuck_after: seconds without a step, after which a trial's process ends itself; None: never.
    run: a name for this run, whose processes check the cache once between them.
    forget: called with a trial that begins anew, whose files elsewhere must go, and fetch with one
        whose weights are read here, which may lie elsewhere; None: there are none. They raise
        OSError while that is away.
    """

    trials: Path
    cache: Path
    device: str
    threads: int
    runner: str
    clean: bool = True
    checkpoint_seconds: float = 10.0
    run: str | None = None
    processes: int = 1
    forget: Callable[[str], None] | None = None
    fetch: Callable[[str], None] | None = None
    stuck_after: float | None = None

    def runtime(self, trial_id: str) -> Runtime:
        """Of one trial's jobs."""
        return Runtime(
            device=self.device,
            threads=self.threads,
            cache_dir=self.cache,
            trial_dir=trial_folder(self.trials, trial_id),
            checkpoint_seconds=self.checkpoint_seconds,
            run=self.run,
            processes=self.processes,
            stuck_after=self.stuck_after,
        )
