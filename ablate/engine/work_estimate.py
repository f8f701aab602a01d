"""Describe what a plan would run, as text: cells, known results, warnings, time.

Times are estimated from finished trials of the same kind or from a pilot. A trial takes `setup` +
epochs × seconds per epoch of its kind. The slots share the trials, and a sweep takes at least as
long as its longest trial. Other load, the start of workers, and waiting for results of other trials
are not modelled.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psutil

from ablate.designs.base import ENSEMBLE
from ablate.engine.driver_status import format_duration
from ablate.engine.preflight import (
    FETCH,
    FETCHED,
    build_example_config,
    find_missing_weights,
    preview_data,
    preview_progression,
)
from ablate.engine.resources import count_fitting_here
from ablate.engine.settings import Settings
from ablate.ledger import queries
from ablate.ledger.facts import build_refusal, summarize_differences
from ablate.ledger.records import Records
from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from ablate.sweep.estimates import build_cost_key, describe_advice, load_pilots
from ablate.sweep.progression import Progression
from ablate.sweep.required_inputs import Use
from reports.stats.describe import pooled_sd
from reports.tables.labels import format_ratio
from reports.tables.term_shares import DROWNING, INACTIVE
from trainables.core.runtime import Runtime
from trainables.jobs.request import Job
from trainables.words.environment import HUB, build_public_environment, run_module
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text

MOST_PILOTS = 24  # kinds of trials that are tried
MEMORY_SHARE = 0.9  # of a machine or GPU that trials may fill


@dataclass(frozen=True)
class Preview:
    """The text of a plan.

    Attributes:
        refused: why a run would be refused, or None.
        runnable: False if the pilot of every kind of trial failed.
        notes, classes, precision, work: parts of the text: warnings, sentences on classes
            (`preview_data`), what each study's table detects, what there is to run.
    """

    text: str
    refused: ConfigError | None
    runnable: bool
    notes: list[str]
    classes: dict[str, str]
    precision: dict[str, list[str]]
    work: list[str]


def preview_plan(plan: Plan, settings: Settings, *, pilot: bool = False) -> Preview:
    """Describe what a plan would run. No trial runs, and no ledger is created.

    With `pilot`, a few steps of each kind of trial are timed if their time is not known.
    """
    cache, request = settings.cache, settings.request
    with preview_progression(plan, settings) as progression:
        # check the inputs
        notes = [f"warning: {text}" for text in advice.list_plan_warnings(plan)]
        notes += [
            f"warning: {name} is not on this machine, so the plan shows neither its images nor the "
            f"final ids of trials. {fault[:1].upper()}{fault[1:]}"
            for name, fault in plan.absent_data.items()
        ]
        trainings, classes = dict[str, str](), dict[str, str]()
        if settings.reads_data:
            trainings, data_notes, classes = preview_data(plan, progression, cache)
            notes += data_notes
        if settings.sources or settings.reads_data:  # the data may be absent
            missing = find_missing_weights(plan, progression, cache, request.device)
            notes += [describe_missing(weights, use) for weights, use in missing.items()]
            notes += [f"weights: {FETCH}"] if missing else []
        # find the seconds per epoch of each kind of trial in the ledger, or by a pilot (short run)
        facts = progression.facts
        rates = load_measured_rates(facts.ledger)
        kinds = _find_pending_kinds(plan, progression) if pilot else {}
        unknown = {key: config for key, config in kinds.items() if key not in rates}
        piloted, failures = measure_pilot_rates(unknown, settings)  # rates; why a pilot failed
        for why, kinds_failed in Counter(failures.values()).items():
            subject = "a kind" if kinds_failed == 1 else f"{kinds_failed} kinds"
            notes.append(f"warning: {subject} of trial cannot run: {why}")
        # describe the studies
        workload = Workload(plan, progression, rates | piloted, request.gpus)
        lines = [f"sweep {plan.spec.name} ({plan.sweep_id}), objective {plan.spec.objective}"]
        precision: dict[str, list[str]] = {}
        pilots = load_pilots(progression)
        repeated: dict[str, int] = {}  # copy of a study for a further search → number of its cells
        for name in plan.order:
            line = workload.add_study(name)
            if name in plan.copies:
                repeated[name] = progression.studies[name].size
                continue
            lines.append(line)
            details = [trainings[name]] if name in trainings else []
            details += advice.list_study_notes(plan, name)
            scatter = estimate_seed_scatter(progression, name)
            precision[name] = advice.describe_precision(plan, name, scatter)
            if name in pilots:
                precision[name] += describe_advice(pilots[name], plan.spec.report.smallest)
            details += precision[name]
            lines += [f"    {text}" for text in details]
        if repeated:
            n_studies = len({plan.copies[name] for name in repeated})
            n_cells = sum(repeated.values())
            lines.append(
                f"  {plan.spec.searches} searches: {n_studies} of these studies run again with "
                f"other search seeds, {n_cells} cells more; tuning budgets are those of one search"
            )
        # sum up
        parallel = count_fitting_here(request)
        work = [
            workload.describe_trials(parallel, request.threads),
            *describe_memory(piloted.values(), parallel, psutil.virtual_memory().total),
            *describe_terms(piloted, kinds),
            *workload.describe_time(parallel, piloted=pilot),
        ]
        lines += [*notes, *work]
        prefix = (
            "results of another version of the code are accepted"
            if settings.same_code
            else "source"
        )
        lines += [f"{prefix}: {text}" for text in summarize_differences(facts.differing)]
    refused = None if settings.same_code else build_refusal(facts.differing)
    has_no_runnable_kind = bool(failures) and failures.keys() >= kinds.keys()
    parts = notes, classes, precision, work
    return Preview("\n".join(lines), refused, not has_no_runnable_kind, *parts)


def describe_missing(weights: str, use: Use) -> str:
    """Say that weights of a backbone are missing, and whether a run fetches them or ends."""
    consequence = "A run ends before its first trial. `ablate backbones` lists files that fit."
    if use.backbone is not None and use.backbone.weights in FETCHED:
        consequence = "A run downloads the weights first."
    fault = f"{weights} is not on this machine (`backbone.weights` of study {use.study})."
    return f"weights: {fault} {consequence}"


def estimate_seed_scatter(progression: Progression, name: str) -> float | None:
    """Estimate a study's standard deviation over seeds, pooled over cells; None if unknown."""
    split, _, metric = progression.plan.find_primary_metric(name).partition("/")
    groups: dict[str, list[float]] = {}  # configuration → values of its seeds
    for cell in progression.studies[name].cells:
        value = progression.facts[cell.trial_id].evaluations.get(split, {}).get(metric)
        if value is not None and cell.fold is None:  # folds differ in their images, too
            groups.setdefault(cell.config_hash, []).append(value)
    pooled = pooled_sd(groups.values())  # (standard deviation, degrees of freedom), or None
    return pooled[0] if pooled else None


class Workload:
    """Sum up the pending work of a plan's studies, in their order.

    Attributes:
        todo: trials to train.
        later: number of trials that follow from results.
        again: trained trials that lack an evaluation; the time estimate does not include them.
    """

    def __init__(
        self, plan: Plan, progression: Progression, rates: "Mapping[str, Rate]", gpus: float
    ) -> None:
        """Start with no studies; `rates` are the measured seconds by kind of trial."""
        self.plan, self.progression, self.rates, self.gpus = plan, progression, rates, gpus
        self.estimate = Estimate()
        self.todo: set[str] = set()
        self.again: set[str] = set()  # finished trials that lack evaluations
        self.later = 0
        self._first_study: dict[str, str] = {}  # trial → the study that named it first

    def add_study(self, name: str) -> str:
        """Count the pending trials that no earlier study has; describe the study in one line."""
        state, design = self.progression.studies[name], self.plan.spec.studies[name]
        seeds, folds = len(self.plan.list_seeds(name)), len(self.plan.list_folds(name))
        trials = {cell.trial_id for cell in state.cells}
        # settled: needs no job; trained: may lack an evaluation; hidden: depends on results to come
        settled = [cell.trial_id for cell in state.cells if self.progression.is_settled(cell)]
        trained = {trial for trial in trials if self.progression.facts[trial].status == "done"}
        shared = {self._first_study[trial] for trial in trials if trial in self._first_study}
        hidden = 0 if state.blocked else state.size - len(state.cells)
        # estimate the time of new trials, for this study and for all studies so far
        counted = trained.union(settled, self._first_study)
        new_cells = {cell.trial_id: cell for cell in state.cells if cell.trial_id not in counted}
        estimate = Estimate()
        for total in (estimate, self.estimate):
            for cell in new_cells.values():
                if cell.error is None:
                    total.add(cell.config, self.rates)
            if hidden:
                total.add(build_example_config(self.plan, state), self.rates, hidden)
        self.todo |= trials.difference(settled, trained)
        self.again |= trained.difference(settled)
        self.later += hidden
        self._first_study = dict.fromkeys(trials, name) | self._first_study
        # describe the study
        text = f"  {name}: {design.design}, {state.size // seeds // folds} cells × {seeds} seeds"
        if folds > 1:
            text += f" × {folds} {'folds' if design.splits is None else 'splits'}"
        if ENSEMBLE in design.evaluate:
            text += " and their ensemble"
        text += f", {len(settled)} known already"
        if shared:
            text += f", shares trials with {', '.join(sorted(shared))}"
        if state.infeasible:
            text += f", {len(state.infeasible)} proposals beyond the limits"
        if state.blocked:
            text += f", blocked: {state.blocked}"
        elif hidden:
            text += f", {hidden} depend on results to come"
        if estimate.unknown:
            text += ", time unknown"
        elif estimate.trials:
            text += f", about {format_duration(estimate.seconds)}"
        return text

    def describe_trials(self, parallel: int, threads: int) -> str:
        """Say how many trials run now and how many later, with `parallel` trials at once."""
        text = f"{len(self.todo)} trials to run now and {self.later} later"
        if self.again:
            text += f", and {len(self.again)} finished trials to evaluate again"
        return f"{text}; {parallel} at once, {threads} thread(s) each"

    def describe_time(self, parallel: int, *, piloted: bool) -> list[str]:
        """Say how long all studies take with `parallel` trials at once, and how many GPU-hours."""
        if self.estimate.unknown:
            remedy = "" if piloted else ". --pilot times a few steps of each kind of trial"
            text = f"{self.estimate.unknown} of the pending trials are of a kind never timed"
            return [f"time: unknown, because {text}{remedy}"]
        seconds = max(self.estimate.seconds / parallel, self.estimate.longest)
        may_end_early = bool(self.progression.scheduled_studies)
        bound = ", if no scheduler stops a trial early" if may_end_early else ""
        lines = [f"time: about {format_duration(seconds)}{bound}"]
        if self.gpus:
            hours = self.gpus * self.estimate.seconds / 3600
            lines.append(f"in all: about {hours:.2g} GPU-hours")
        return lines


def _find_pending_kinds(plan: Plan, progression: Progression) -> dict[str, dict[str, Any]]:
    """Return one configuration of each kind of pending trial, by its `build_cost_key`."""
    configs = []
    for state in progression.studies.values():
        pending = [cell for cell in state.cells if not progression.is_settled(cell)]
        configs += [cell.config for cell in pending if cell.error is None]
        if len(state.cells) < state.size and not state.blocked:
            configs.append(build_example_config(plan, state))
    return {build_cost_key(config): config for config in configs}


# ------------------------------------------------------------------------------ seconds and memory


@dataclass(frozen=True)
class Rate:
    """Measured cost of a kind of trial.

    Attributes:
        epoch: seconds of one epoch.
        setup: seconds before the first epoch.
        peak: bytes of memory of one trial; None if unknown.
        device: bytes of memory of its GPU; None if unknown.
        ratios: term of the loss → its gradient over the metric term's at the first step.
    """

    epoch: float
    setup: float = 0.0
    peak: int | None = None
    device: int | None = None
    ratios: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass
class Estimate:
    """Estimated seconds of some trials one after the other, and of the longest one.

    Attributes:
        unknown: number of trials without a known rate.
    """

    trials: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    unknown: int = 0

    def add(self, config: Mapping[str, Any], rates: Mapping[str, Rate], times: int = 1) -> None:
        """Add `times` trials with one configuration, as unknown ones if their kind has no rate."""
        rate = rates.get(build_cost_key(config))
        if rate is None:
            self.unknown += times
            return
        seconds = rate.setup + config["training"]["epochs"] * rate.epoch
        self.trials += times
        self.seconds += times * seconds
        self.longest = max(self.longest, seconds)


def load_measured_rates(records: Records) -> dict[str, Rate]:
    """Return the median seconds of an epoch of each kind of finished trial, by cost key."""
    seconds: dict[str, list[float]] = {}  # cost key → seconds of an epoch in each trial
    for row in queries.list_finished_trials(records, 0.0):
        if row["epochs"] and row["seconds"] is not None:
            key = build_cost_key(row["config"])
            seconds.setdefault(key, []).append(row["seconds"] / row["epochs"])
    return {key: Rate(statistics.median(values)) for key, values in seconds.items()}


def measure_pilot_rates(
    configs: Mapping[str, Mapping[str, Any]], settings: Settings
) -> tuple[dict[str, Rate], dict[str, str]]:
    """Time a few steps of each kind of trial; return rates and, for failed pilots, reasons.

    Trials that use several processes have no pilot, because a pilot is one process.
    """
    rates: dict[str, Rate] = {}
    reasons: dict[str, str] = {}
    count = min(MOST_PILOTS, len(configs)) if settings.request.processes == 1 else 0
    for number, (key, config) in enumerate(islice(configs.items(), count), 1):
        print_text(f"pilot: time trials of kind {number} of {count}", error=True, flush=True)
        report = run_pilot(config, settings)
        if "error" in report:
            reasons[key] = report["error"]
        else:
            epoch = report["steps_per_epoch"] * statistics.fmean(report["steps"])
            memory, device = report["peak_bytes"], report["device_bytes"]
            seconds = epoch + report["evaluate"], report["setup"]
            rates[key] = Rate(*seconds, memory, device, report["ratios"])
    return rates, reasons


def run_pilot(config: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Train a few steps in a subprocess; return its report of times and memory, or {"error"}."""
    request, cache = settings.request, settings.cache.resolve()
    runtime = Runtime(device=request.device, threads=request.threads, cache_dir=cache)
    job = Job(trial_id="pilot", config=config, seed=0, runtime=runtime, evaluate=())
    thread_limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = build_public_environment(settings.tracking_uri, HUB)
    environment |= dict.fromkeys(thread_limits, str(request.threads))
    process = run_module("trainables.jobs.pilot", job.to_dict(), environment)
    if process.returncode == 0 and process.stdout.strip():
        return dict(json.loads(process.stdout.strip().splitlines()[-1]))
    fault = process.stderr.strip().rpartition("\n")[2] or f"exit code {process.returncode}"
    return {"error": f"its pilot has failed: {fault}"}


def describe_terms(
    rates: Mapping[str, Rate], configs: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Say how strong the terms of each kind of trial are at the first step, and warn of extremes.

    Args:
        rates: rates by kind, as pilots measured them.
        configs: the trial of each kind that its pilot ran.
    """
    lines: dict[str, None] = {}
    for key, rate in rates.items():
        if not rate.ratios:
            continue
        config = configs[key]
        names = [f"{term} {format_ratio(ratio)}" for term, ratio in rate.ratios.items()]
        kind = f"{config['method']['name']} with {config['loss']['name']}"
        lines[f"terms: {kind}: {', '.join(names)} times the metric's gradient at first"] = None
        for term, ratio in rate.ratios.items():
            if ratio > DROWNING:
                lines[f"warning: the term {term} of {kind} drowns the metric"] = None
            elif ratio < INACTIVE:
                lines[f"warning: the term {term} of {kind} does nothing"] = None
    return list(lines)


def describe_memory(rates: Iterable[Rate], parallel: int, memory: int) -> list[str]:
    """Say how much memory a trial needs, and warn if `parallel` trials need more than `memory`."""
    measured = [rate for rate in rates if rate.peak]
    if not measured:
        return []
    gib = 2**30
    peak = max(rate.peak or 0 for rate in measured)  # bytes of the largest trial
    text = f"memory: at most {peak / gib:.1f} GiB per trial, as measured by the pilot"
    if gpu_memory := measured[0].device:
        fits = max(1, int(MEMORY_SHARE * gpu_memory // peak))
        size = f"{gpu_memory / gib:.0f} GiB"
        return [f"{text}; {fits} fit on one GPU of {size} (`resources.gpus: {1 / fits:.2g}`)"]
    if parallel * peak <= MEMORY_SHARE * memory:
        return [text]
    need, available = f"{parallel * peak / gib:.1f} GiB", f"{memory / gib:.1f} GiB"
    fault = f"{parallel} trials at once need {need}, and this machine has {available}."
    return [text, f"warning: {fault} Raise resources.cpus so that fewer trials run at once."]
