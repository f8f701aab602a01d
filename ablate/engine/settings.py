"""Hold the settings of a run, its provenance and its outcome."""

import subprocess
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ablate.engine.resources import Request
from ablate.ledger.facts import Facts, Sources
from ablate.ledger.ledger import Ledger
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.sweep.trial_queue import JobSettings
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrialTracker
from trainables.core.runtime import TRIALS, Runtime
from trainables.words.environment import build_public_environment
from trainables.words.terminal import format_command_line

LIBRARIES = ("torch", "torchvision", "timm", "pytorch-metric-learning", "ray", "optuna", "mlflow")
# the name in records → the name of the installed distribution
PACKAGES = {"ablate": "ablate-dml", **{name: name for name in (*LIBRARIES, "numpy")}}
ROOT = Path(__file__).resolve().parents[2]
RUNNER = "trainables.jobs.job:run_job"  # what a worker does with a job, unless it is told


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run that are used as they are given.

    Attributes:
        runner: what runs a job, as `module:function` (`JobSettings`).
        backend: what runs the jobs: a name in `ablate.backends.base.BACKENDS`.
        storage: where copies of the ledger and checkpoints are stored: a path, `s3://…`, `gs://…`,
            `hdfs://…` or `env:NAME`.
        budget: seconds after which no new trial starts.
        same_code: whether results of other code at the same REVISION count as results of this code.
        stuck_after: seconds without a step, after which a trial's process writes its stack to the
            trial's log and ends, and the trial is retried; None: never.
    """

    runner: str = RUNNER
    backend: str = "ray"
    address: str | None = None
    storage: str | None = field(default=None, repr=False)
    budget: float | None = None
    retry_failed: bool = False
    force: bool = False
    same_code: bool = False
    checkpoint_seconds: float = 10.0
    stuck_after: float | None = None


@dataclass(frozen=True)
class Settings(RunOptions):
    """How a plan is run. Nothing here is part of a trial's identity.

    Attributes:
        evaluator: name of the evaluation code whose results count; None accepts any.
        sources: whether the runner's code is that of this package and its plug-ins, so that its
            source is recorded with each trial.
        tracking_uri: MLflow's store; None for no MLflow.
        live_report: whether the report's page is renewed while trials run.
        replay: the command that writes to MLflow what a run could not.
        trackers: further places for results (`--tracker`).
        reads_data: whether the runner reads the trials' data, which is then checked first.
    """

    out: Path
    cache: Path
    request: Request
    evaluator: str | None = None
    sources: bool = False
    tracking_uri: str | None = field(default=None, repr=False)
    live_report: bool = False
    replay: str = "`ablate ledger replay`"
    trackers: tuple[TrialTracker, ...] = ()
    reads_data: bool = False
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        return self.out / "ledger.sqlite"

    @property
    def trials(self) -> Path:
        return (self.out / TRIALS).resolve()

    def open_facts(self, ledger: Ledger) -> Facts:
        """Return the ledger's results; `force` hides all results, `retry_failed` only failures."""
        return Facts(
            ledger,
            self.evaluator,
            retry_failed=self.retry_failed,
            force=self.force,
            sources=Sources(ledger) if self.sources else None,
        )

    def begin_sweep(self, plan: Plan, ledger: Ledger) -> Progression:
        """Record a plan's sweep in the ledger, and return the state of its studies.

        The trials of drivers that were killed become free.
        """
        ledger.release_dead()
        progression = Progression(plan, self.open_facts(ledger), record=True)
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolve_spec(), self.provenance)
        return progression

    def build_job_settings(self, plan: Plan) -> JobSettings:
        """Return the settings that all jobs of a run share, such as device and trial folder."""
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

    Attributes:
        missing: study → number of cells × seeds without a result.
        failed: study → number of cells × seeds with a recorded failure.
        lost: trial → why this run gives it up.
        blocked: study → why it cannot continue.
        interrupted: the signal that stopped the run, or None.
        broken: why Ray could not continue, or empty.
        incomplete_trackers: names of trackers that lack results; if MLflow does, so do tables.
        same: a line for each component whose other code was accepted as the same.
    """

    sweep_id: str
    trained: int
    missing: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    interrupted: int | None = None
    out_of_time: bool = False
    incomplete_trackers: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    broken: str = ""

    @property
    def is_finished(self) -> bool:
        return not self.missing

    @property
    def is_tracked(self) -> bool:
        """Whether MLflow has all results."""
        return MlflowTracker.name not in self.incomplete_trackers

    @property
    def code(self) -> int:
        """The exit code: 128 + n after signal n; 0 if all is done, also in trackers; else 1."""
        if self.interrupted is not None:
            return 128 + self.interrupted
        return 0 if self.is_finished and not self.failed and not self.incomplete_trackers else 1


def collect_provenance() -> dict[str, Any]:
    """Return {"versions": by package, "command", "git_commit", "git_dirty"}, as far as known."""
    facts: dict[str, Any] = {"versions": {}}
    if command := format_command_line():
        facts["command"] = command
    for package, distribution in PACKAGES.items():
        with suppress(PackageNotFoundError):
            facts["versions"][package] = version(distribution)
    if (ROOT / ".git").exists() and (commit := _run_git("rev-parse", "HEAD")):
        facts["git_commit"] = commit
        facts["git_dirty"] = bool(_run_git("status", "--porcelain", "-uno"))
    return facts


def _run_git(*args: str) -> str:
    """Return the output of a git command in this repository, or an empty string if it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(
            ["git", "-C", str(ROOT), *args],
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=10,
            env={**build_public_environment(), "GIT_OPTIONAL_LOCKS": "0"},
        ).strip()
    return ""
