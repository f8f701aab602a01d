"""Cache what the ledger records of trials."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ablate.ledger.ledger import Ledger
from ablate.ledger.limits import Needs, read_needs
from ablate.ledger.sources import Differing, Sources, build_refusal, summarize_differences
from trainables.words.metrics import MetricName


@dataclass(frozen=True)
class Fact:
    """The state and results of one trial, from the ledger."""

    status: str | None  # None: the ledger has no such trial
    evaluations: dict[str, dict[str, float]]
    foreign: bool = False  # other code made it: it is neither used nor replaced
    needs: Needs = field(default_factory=dict)  # what its training needed, as far as known

    def is_settled(self, evaluate: tuple[str, ...], metrics: tuple[str, ...]) -> bool:
        """Return whether the trial failed, or is done with these evaluations and metrics."""
        if self.foreign:  # results of other code do not count
            return False
        if self.status == "failed":
            return True
        return self.status == "done" and not self.find_missing_evaluations(evaluate, metrics)

    def list_values(self, metrics: Iterable[str]) -> list[float | None]:
        """Return the trial's values of some metrics; None where there is none."""
        names = map(MetricName.parse, metrics)
        return [self.evaluations.get(split, {}).get(name) for split, name in names]

    def find_missing_evaluations(
        self, evaluate: Iterable[str], metrics: Iterable[str]
    ) -> dict[str, list[str]]:
        """Map each split whose evaluation is absent or incomplete to those `metrics` it lacks."""
        lacking: dict[str, list[str]] = {}
        for split in evaluate:
            names = [name for name in metrics if name not in self.evaluations.get(split, {})]
            if names or split not in self.evaluations:
                lacking[split] = names
        return lacking


@dataclass(eq=False)
class Facts:
    """The facts of all trials, each read once and again by `refresh`."""

    ledger: Ledger
    evaluator: str | None  # only evaluations by this evaluator count; None: all count
    retry_failed: bool  # recorded failures do not count in this run
    force: bool = False  # no record counts in this run
    sources: Sources | None = None  # None: the code that made results is not compared

    differing: dict[str, Differing] = field(default_factory=dict)  # trials that other code made
    strict: bool = False  # whether trials that differ are foreign
    version: int = 0  # changes whenever a fact does
    _read: dict[str, Fact] = field(default_factory=dict)
    _values: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)

    def __getitem__(self, trial_id: str) -> Fact:
        """Return a trial's fact, read once; ignore a record that this run replaces."""
        if trial_id not in self._read:
            self.refresh(trial_id)
            failed = self._read[trial_id].status == "failed"
            if self.force or (self.retry_failed and failed):
                self._read[trial_id] = Fact(None, {})
                self.differing.pop(trial_id, None)
        return self._read[trial_id]

    def reconcile_code_versions(self, trial_ids: Iterable[str], *, same_code: bool) -> list[str]:
        """Accept results that other code made if `same_code` is set, or raise a ConfigError.

        Returns:
            A line for each component whose results by other code were accepted.
        """
        for trial_id in trial_ids:
            self[trial_id]  # reads its record, and enters it in `differing` if other code made it
        refusal = build_refusal(self.differing)
        if refusal is not None and not same_code:
            raise refusal
        lines = summarize_differences(self.differing)
        if self.sources is not None and self.differing:
            self.sources.accept_as_same_code(self.differing.values())
            self.differing.clear()
        self.strict = not same_code
        return lines

    def list_epoch_values(self, trial_id: str, metric: str) -> tuple[float, ...]:
        """Return the values of a metric at epochs 1, 2, …, up to the first epoch without one."""
        if self[trial_id].status is None:  # there is no record, or this run replaces it
            return ()
        values = self._values.setdefault(trial_id, {})
        if metric not in values:
            numbers: list[float] = []
            for epoch, row in enumerate(self.ledger.list_epochs(trial_id), start=1):
                value = row["metrics"].get(metric)
                if row["epoch"] != epoch or value is None:
                    break
                numbers.append(value)
            values[metric] = tuple(numbers)
        return values[metric]

    def refresh(self, trial_id: str) -> None:
        """Read a trial's record again; enter the trial in `differing` if other code made it."""
        self.version += 1  # so that schedulers decide anew
        self._values.pop(trial_id, None)
        self.differing.pop(trial_id, None)
        row = self.ledger.get_trial(trial_id)
        if row is None:
            self._read[trial_id] = Fact(None, {})  # the ledger has no such trial
            return
        status, source = row["status"], row["source"]
        has_results = status in ("done", "failed")
        if status in ("partial", "interrupted"):
            has_results = bool(self.ledger.list_epochs(trial_id))
        if self.sources is not None and has_results:
            evaluators = tuple(self.ledger.list_evaluator_sources(trial_id, self.evaluator))
            if names := self.sources.find_differing(source, evaluators):
                self.differing[trial_id] = Differing(names, status, source, evaluators)
        evaluations = self.ledger.get_evaluations(trial_id, self.evaluator)
        is_foreign = self.strict and trial_id in self.differing
        self._read[trial_id] = Fact(status, evaluations, is_foreign, read_needs(row))
