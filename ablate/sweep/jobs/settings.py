"""What all jobs of a sweep have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainables.core.runtime import Runtime


@dataclass(frozen=True)
class JobSettings:
    """device: "cpu", "cuda" or "cuda:N". threads: of a trial on the CPU. processes: of a trial.
    runner: `module:function`. clean: whether checkpoints go once a trial has ended.
    checkpoint_seconds: least time between checkpoints.
    run: a name for this run, whose processes check the cache once between them.
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

    def runtime(self, trial_id: str) -> Runtime:
        """Of one trial's jobs."""
        return Runtime(
            device=self.device,
            threads=self.threads,
            cache_dir=self.cache,
            trial_dir=self.trials / trial_id,
            checkpoint_seconds=self.checkpoint_seconds,
            run=self.run,
            processes=self.processes,
        )
