"""Use sweeps from Python: prepare a checked plan, run it, read its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from ablate.backends.base import find_backend
from ablate.backends.ray.session import check_cluster_port
from ablate.engine.driver import run_plan
from ablate.engine.driver_status import resolve_output_folder
from ablate.engine.resources import request_without_local_check, resolve_request
from ablate.engine.settings import RUNNER, Outcome, RunOptions, Settings, collect_provenance
from ablate.ledger.records import Records
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Fingerprint, Overrides, Plan
from ablate.results import Best, build_result_rows, find_best, read_frame
from ablate.spec.model import LoadedSpec
from ablate.spec.read import read_spec
from ablate.tracking.store import Store
from ablate.tracking.tracker import build_trackers
from reports.frame import Frame
from trainables.words.metrics import is_listed
from trainables.words.terminal import show_progress
from trainables.words.texts import check_values

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Options(Overrides, RunOptions):
    """Options of a run, as on the command line.

    Attributes:
        out: output folder.
        levels: factor → the levels that are kept of it; a spec that is read already has only these.
        tracking_uri: any MLflow URI, or `env:NAME`, the variable that holds it; default: SQLite in
            `out`.
        trackers: further places for results, as `tensorboard`, `wandb` or `wandb:PROJECT`.
        track, report: whether MLflow is written, and a report compiled from it at the end.
        fingerprint: `module:function`; what identifies a data set.
        allow_code: local files that the spec names as samplers may run as code.
    """

    out: str | Path = "runs"
    device: str = "auto"
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tracking_uri: str | None = field(default=None, repr=False)
    trackers: tuple[str, ...] = ()
    track: bool = True
    report: bool = True
    fingerprint: str = "trainables.data.dataset:fingerprint"
    evaluator: str | None = None
    allow_code: bool = False

    def __post_init__(self) -> None:
        check_values(self.settings, "--set")

    @property
    def folder(self) -> Path:
        return resolve_output_folder(self.out)

    @property
    def store(self) -> Store:
        return Store(self.folder, self.tracking_uri)


@dataclass(frozen=True)
class Results:
    """A finished sweep.

    Attributes:
        paths: the report's files by kind; empty without a report.
        text: the report's tables for a terminal.
        trials_page: address of the sweep's trials in MLflow.
    """

    outcome: Outcome
    ledger: Path
    paths: dict[str, Path] = field(default_factory=dict)
    text: str = ""
    trials_page: str = ""

    @property
    def sweep_id(self) -> str:
        return self.outcome.sweep_id

    @property
    def frame(self) -> "pd.DataFrame":
        """A DataFrame with one row for each cell (configuration that a study compares) and seed.

        Its columns are study, cell, seed, trial_id, status, reason, the cell's factor levels as
        `coords/…`, varied settings as `params/…`, and the selected epoch's metrics as `val/…`
        and `test/…`.
        """
        import pandas as pd

        return pd.DataFrame(build_result_rows(self._read()))

    def best(self, study: str | None = None) -> Best:
        """Return a study's best cell; without a name, compare all studies by the sweep's objective.

        The result has `config`, `metrics`, `model` (a path) and `yaml` (a spec that trains it).

        Raises:
            ConfigError: there is no such study, or it has no result.
        """
        return find_best(self._read(), study, self.ledger.parent)

    def _read(self) -> Frame:
        with Records(self.ledger) as records:
            return read_frame(records, self.sweep_id)


def prepare(
    spec: str | Path | Mapping[str, Any] | LoadedSpec,
    options: Options,
    *,
    leaves: bool = False,
    runs: bool = True,
) -> tuple[Plan, Settings]:
    """Check a spec and this machine; return the plan of trials, and the settings of its run.

    Args:
        leaves: whether the trials will run on other machines, so that local cores and GPUs are not
            checked.
        runs: whether the plan will run; if not, no cluster needs to be reachable, and published
            data sets need not be on this machine.

    Raises:
        ConfigError: the spec, the data or the machine has a fault.
    """
    from trainables.data.cache import locate_default_cache, require_cache
    from trainables.evaluation.metric import METRIC_REGISTRY
    from trainables.evaluation.metrics import EVALUATOR

    loaded = spec
    if not isinstance(loaded, LoadedSpec):
        loaded = read_spec(loaded, options.settings, options.allow_code, options.levels)
    find_backend(options.backend)
    if options.track:
        options.store.check_usable(writes=runs)
    cache = locate_default_cache()
    # find the resources of a trial, and check the cluster before the data, which may take minutes
    resources = loaded.spec.resources
    if options.address == "local":
        options = replace(options, address=None)
    address = options.address
    if leaves:
        request = request_without_local_check(resources, options.device)
    else:
        request = resolve_request(resources, options.device, cluster=address is not None)
        if runs and address is not None:
            check_cluster_port(address)
    # plan the trials; a custom runner may ignore the data, and its source code is not recorded
    uses_default_runner = options.runner == RUNNER
    fingerprint = cast(Fingerprint, resolve_name(options.fingerprint))
    with require_cache(), show_progress():
        plan = build_checked_plan(loaded, options, fingerprint, cache, needs_data=runs)
    # record what a report cannot find out: the order of studies, and metrics that no table has
    study_order, foreign_metrics = list(plan.spec.studies), {}
    for metric in (METRIC_REGISTRY[name] for name in METRIC_REGISTRY):
        if not is_listed(metric.name):
            facts = {"unit": metric.unit, "direction": metric.direction, "label": metric.label}
            foreign_metrics[metric.name] = facts
    settings = Settings(
        out=options.folder,
        cache=cache,
        request=request,
        evaluator=options.evaluator or (EVALUATOR if uses_default_runner else None),
        sources=uses_default_runner,
        tracking_uri=options.store.uri if options.track else None,
        live_report=options.report and options.track,
        replay=options.store.format_command("ledger replay"),
        trackers=tuple(build_trackers(options.trackers, options.folder)),
        reads_data=uses_default_runner and not plan.absent_data,
        **{option.name: getattr(options, option.name) for option in fields(RunOptions)},
        provenance={**collect_provenance(), "study_order": study_order, "metrics": foreign_metrics},
    )
    return plan, settings


def run(spec: str | Path | Mapping[str, Any], **options: Any) -> Results:
    """Run a sweep and compile its report; results that the ledger already has are reused.

    Args:
        spec: a YAML file, or an equivalent mapping.
        options: fields of `Options`; `budget` in seconds, `settings` as `{dotted path: value}`.

    Raises:
        ConfigError: wrong input; nothing has run.
        LedgerError: the ledger cannot be written; all records are kept.
        RayStartError: Ray does not start; no trial has run.
    """
    chosen = Options(**options)
    plan, settings = prepare(spec, chosen)
    return finish(plan, settings, chosen, run_plan(plan, settings))


def finish(plan: Plan, settings: Settings, options: Options, outcome: Outcome) -> Results:
    """Return the results of a run; compile a report first, unless `options` turn that off.

    Raises:
        ReportError: MLflow does not answer, or lacks what the report needs.
    """
    if not (options.report and options.track):
        return Results(outcome, settings.ledger)
    from ablate.tracking.views import compile_report

    report = compile_report(options.store, plan.sweep_id, options.device)
    return Results(outcome, settings.ledger, *report)
