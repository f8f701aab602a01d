"""What a run is asked, and what came of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.engine.ray.resources import Request
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.ledger.sources import Sources
from ablate.plan.plan import Plan
from ablate.sweep.queue import JobSettings
from trainables.core.runtime import Runtime
from trainables.core.trial_folder import TRIALS

RUNNER = "trainables.jobs.job:run_job"  # what a worker does with a job, unless it is told


@dataclass(frozen=True)
class Settings:
    """How a plan is run. None of it is part of a trial's identity.

    runner: as `JobSettings` has it.
    evaluator: name of the evaluation code whose results count; None: any.
    storage: where the ledger is copied to, and checkpoints of trials.
    budget: seconds after which no new trial starts.
    same_code: what other code made is taken as made by this.
    sources: whether the runner's code is that of this package and of those that join it, whose
        source is then kept with each trial.
    tracking_uri: None: no MLflow. replay: the command that writes to it what a run could not.
    reads_data: whether the runner reads the data that trials name, which is then looked at before.
    """

    out: Path
    cache: Path
    request: Request
    runner: str = RUNNER
    evaluator: str | None = None
    address: str | None = None
    storage: str | None = field(default=None, repr=False)
    budget: float | None = None
    retry_failed: bool = False
    force: bool = False
    same_code: bool = False
    sources: bool = False
    tracking_uri: str | None = field(default=None, repr=False)
    replay: str = "`ablate ledger replay`"
    checkpoint_seconds: float = 10.0
    stuck_after: float | None = None
    reads_data: bool = False
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        return self.out / "ledger.sqlite"

    @property
    def trials(self) -> Path:
        return (self.out / TRIALS).resolve()

    def open_facts(self, ledger: Ledger) -> Facts:
        return Facts(
            ledger,
            self.evaluator,
            retry_failed=self.retry_failed,
            force=self.force,
            sources=Sources(ledger) if self.sources else None,
        )

    def build_job_settings(self, plan: Plan) -> JobSettings:
        runtime = Runtime(
            device=self.request.device,
            threads=self.request.threads,
            cache_dir=self.cache.resolve(),
            checkpoint_seconds=self.checkpoint_seconds,
            run=uuid.uuid4().hex,
            processes=self.request.processes,
            stuck_after=self.stuck_after,
        )
        return JobSettings(self.trials, runtime, self.runner, plan.spec.checkpoints == "clean")


@dataclass(frozen=True)
class Outcome:
    """How a run of a sweep ended.

    missing: cells × seeds without a result, by study. failed: likewise, with a failure as
    their fact. lost: trial → why the machine could not finish it. blocked: study → why it
    cannot go on.
    interrupted: the signal that stopped the run, if one did.
    broken: why Ray could not go on; empty: it could.
    tracked: whether MLflow has everything; if not, tables lack what the ledger has.
    same: what was taken as the same code because somebody said so, a line per component.
    """

    sweep_id: str
    trained: int
    missing: dict[str, int]
    failed: dict[str, int]
    lost: dict[str, str]
    blocked: dict[str, str]
    interrupted: int | None
    out_of_time: bool
    tracked: bool = True
    same: tuple[str, ...] = ()
    broken: str = ""

    @property
    def is_finished(self) -> bool:
        return not self.missing

    @property
    def code(self) -> int:
        """As an exit code: 0, all done; 1, something failed or is missing, if only in MLflow;
        128 + n, stopped by signal n."""
        if self.interrupted is not None:
            return 128 + self.interrupted
        return 0 if self.is_finished and not self.failed and self.tracked else 1
