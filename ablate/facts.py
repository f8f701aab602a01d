"""What the ledger says of trials, read once and again when something has happened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ablate.ledger import Ledger


@dataclass(frozen=True)
class Fact:
    """What the ledger says of a trial. status None: nothing."""

    status: str | None
    evaluations: dict[str, dict[str, float]]

    def settles(self, evaluate: tuple[str, ...], metrics: tuple[str, ...]) -> bool:
        """Whether nothing remains to be done for a cell read on these splits."""
        if self.status == "failed":
            return True
        return self.status == "done" and not self.lacking(evaluate, metrics)

    def lacking(self, evaluate: Iterable[str], metrics: Iterable[str]) -> dict[str, list[str]]:
        """Split → the metrics, of these besides the usual ones, that it lacks; splits with
        nothing to add are left out, one that was never evaluated is in it in any case."""
        found = {
            split: [name for name in metrics if name not in self.evaluations.get(split, {})]
            for split in evaluate
        }
        return {s: names for s, names in found.items() if names or s not in self.evaluations}


class Facts:
    """The ledger's facts, read once per trial and again after `refresh`.

    evaluator: only its evaluations count; None: any.
    retry_failed: recorded failures do not count in this run. force: nor does any record.
    """

    def __init__(
        self, ledger: Ledger, evaluator: str | None, *, retry_failed: bool, force: bool = False
    ) -> None:
        self.ledger, self.evaluator = ledger, evaluator
        self.retry_failed, self.force = retry_failed, force
        self._known: dict[str, Fact] = {}
        self._values: dict[str, dict[str, tuple[float, ...]]] = {}  # trial → metric
        self.version = 0  # changes whenever something known does

    def __getitem__(self, trial_id: str) -> Fact:
        if trial_id not in self._known:
            self.refresh(trial_id)
            failed = self._known[trial_id].status == "failed"
            if self.force or (self.retry_failed and failed):
                self._known[trial_id] = Fact(None, {})
        return self._known[trial_id]

    def values(self, trial_id: str, metric: str) -> tuple[float, ...]:
        """A metric at each whole epoch from the first on, until one lacks it."""
        values = self._values.setdefault(trial_id, {})
        if metric not in values:
            found: list[float] = []
            for row in self.ledger.epochs(trial_id):
                value = row["metrics"].get(metric)
                if row["epoch"] != len(found) + 1 or value is None:
                    break
                found.append(value)
            values[metric] = tuple(found)
        return values[metric]

    def refresh(self, trial_id: str) -> None:
        self.version += 1
        self._values.pop(trial_id, None)
        row = self.ledger.trial(trial_id)
        evaluations = self.ledger.evaluations(trial_id, self.evaluator) if row else {}
        self._known[trial_id] = Fact(row["status"] if row else None, evaluations)
