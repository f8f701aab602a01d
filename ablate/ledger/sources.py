"""Check whether recorded results were made by today's code.

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
from dataclasses import dataclass
from typing import Any

from ablate.ledger.ledger import Ledger
from trainables.core import components
from trainables.core.components import EVALUATOR, Code
from trainables.words.errors import ConfigError


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
