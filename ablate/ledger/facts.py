"""Cache what the ledger records of trials, and check whether today's code made it.

Each trial is recorded with the source hash of every component that it ran, and each evaluation with
that of the evaluator. Hashes are not part of an identity: a result is found by its REVISIONs, and
then sources are compared. They count as the same code if the hashes are equal, if this repository's
list says so, or if the user said so (`--same-code`), which the ledger remembers. Results older than
source hashes are accepted.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.ledger.ledger import Ledger
from ablate.ledger.limits import Needs, read_needs
from trainables.core import components
from trainables.core.components import EVALUATOR, Code
from trainables.words.errors import ConfigError
from trainables.words.metrics import MetricName


@dataclass(frozen=True)
class Differing:
    """A recorded trial that other code has made."""

    components: tuple[str, ...]  # those whose source differs
    status: str
    key: str | None  # key of its row of sources
    evaluators: tuple[str | None, ...]  # source hashes of the code that evaluated it


class Sources:
    """The source hashes of the installed code, and the ones that the ledger accepts."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._differing: dict[str, tuple[str, ...]] = {}  # key of a row → components that differ
        self._keys: dict[tuple[str, ...], str] = {}  # components → key of their sources today
        self._same: dict[str, set[str]] = {}  # component → hashes that count as today's code

    def get_or_create_key(self, config: Mapping[str, Any]) -> str:
        """Return the key of the sources that a trial runs; record them if they are new."""
        names = tuple(components.list_components(config))
        if names not in self._keys:
            self._keys[names] = self.record_sources(components.compute_trial_digests(config))
        return self._keys[names]

    def record_sources(self, hashes: Mapping[str, str | None]) -> str:
        """Record source hashes, and return their key, a hash of them."""
        text = json.dumps(hashes, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        with self.ledger.begin_transaction() as db:
            db.execute("INSERT OR IGNORE INTO sources VALUES (?,?)", (key, text))
        return key

    @property
    def evaluator(self) -> str | None:
        return components.compute_component_digest(EVALUATOR)[0]

    def collect_job_sources(self, config: Mapping[str, Any]) -> Code:
        """Return the hashes that a worker's code must match, and their accepted equivalents."""
        names = [*components.list_components(config), EVALUATOR]
        return Code(
            hashes={name: components.compute_component_digest(name)[0] for name in names},
            revisions={name: components.get_revision(name) for name in names},
            same={name: tuple(sorted(self._list_equal_hashes(name))) for name in names},
        )

    def find_differing(self, key: str | None, evaluators: Iterable[str | None]) -> tuple[str, ...]:
        """Return the components of a recorded trial whose source is not today's.

        Args:
            key: key of the source hashes that were recorded with the trial; None if none were.
            evaluators: source hashes of the code that evaluated the trial.
        """
        if key is not None and key not in self._differing:
            self._differing[key] = tuple(
                name
                for name, value in (self.ledger.get_source(key) or {}).items()
                if components.is_known(name) and value not in self._list_equal_hashes(name)
            )
        names = self._differing.get(key or "", ())
        # add the evaluator unless all code that evaluated the trial counts as today's
        evaluated = {value for value in evaluators if value is not None}
        return names if evaluated <= self._list_equal_hashes(EVALUATOR) else (*names, EVALUATOR)

    def _list_equal_hashes(self, name: str) -> set[str]:
        """Return the hashes of a component that count as today's code."""
        if name not in self._same:
            rows = self.ledger.query(
                "SELECT one, other FROM same_code WHERE component=? AND revision=?",
                [name, components.get_revision(name)],
            )
            pairs = [(row["one"], row["other"]) for row in rows]
            self._same[name] = components.list_equal_digests(name, pairs)
        return self._same[name]

    def accept_as_same_code(self, differing: Iterable[Differing]) -> None:
        """Record in the ledger that the sources of these trials count as today's code."""
        pairs: set[tuple[str, str, str, str]] = set()
        for trial in differing:
            recorded = self.ledger.get_source(trial.key) or {}
            for name in trial.components:
                now, _ = components.compute_component_digest(name)
                hashes = trial.evaluators if name == EVALUATOR else (recorded.get(name),)
                for before in hashes:
                    if before is not None and now is not None:
                        pairs.add((name, components.get_revision(name), before, now))
        with self.ledger.begin_transaction() as db:
            db.executemany("INSERT OR IGNORE INTO same_code VALUES (?,?,?,?)", sorted(pairs))
        self._differing.clear()
        self._same.clear()


def build_refusal(differing: Mapping[str, Differing]) -> ConfigError | None:
    """Return the error that refuses results of other code; None if there are none."""
    if not differing:
        return None
    unfinished = sum(trial.status != "done" for trial in differing.values())
    more = f" ({unfinished} of them are unfinished or failed)" if unfinished else ""
    counts = Counter(name for trial in differing.values() for name in trial.components)
    return ConfigError(
        "source",
        f"{len(differing)} known trials were made by other code{more}. Components that differ: "
        f"{', '.join(name for name, _ in counts.most_common())}",
        "If results change, raise the REVISION of these components, and the trials run again. If "
        "not, give --same-code once. --force runs all trials of this sweep again",
    )


def summarize_differences(differing: Mapping[str, Differing]) -> list[str]:
    """Return a line for each component whose source differs, with the number of its trials."""
    counts = Counter(name for trial in differing.values() for name in trial.components)
    lines = []
    for name, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        digest, reason = components.compute_component_digest(name)
        fault = f"the source was changed, but its REVISION is still {components.get_revision(name)}"
        if digest is None:
            fault = f"its source cannot be read ({reason})"
        lines.append(f"{name}: {fault}; {count} trial{'s' * (count > 1)} used another source")
    return lines


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
