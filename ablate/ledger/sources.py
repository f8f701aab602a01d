"""Whether what the ledger holds was made by the code as it is now.

With each trial stands the hash of every component's source that it ran (`trainables/source`), with
each evaluation that of the evaluator. They are no part of any identity: a result is found by its
REVISIONs, and then it is asked whether its source is today's. It is, where the hashes are equal,
where this repository's list says that two are one code, or where somebody said so (`--same-code`),
which the ledger remembers. What was recorded before sources were kept has none, and is taken.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.ledger.ledger import Ledger
from trainables.core import components, source_digests
from trainables.core.code_version import Code
from trainables.core.components import EVALUATOR
from trainables.errors import ConfigError


@dataclass(frozen=True)
class Differing:
    """A recorded trial that other code made.

    components: those whose source differs. key: of its row of sources, if it has one.
    evaluators: the hashes of what evaluated it.
    """

    components: tuple[str, ...]
    status: str
    key: str | None
    evaluators: tuple[str | None, ...]


class Sources:
    """The source of the code that is here, beside those that the ledger has seen."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._seen: dict[str, tuple[str, ...]] = {}  # key of a row → components that differ
        self._keys: dict[tuple[str, ...], str] = {}
        self._same: dict[str, set[str]] = {}

    # ---------------------------------------------------------------- what runs

    def key(self, config: Mapping[str, Any]) -> str:
        """Of the ledger's row with the sources that a trial runs; made if it is missing."""
        names = tuple(components.list_components(config))
        if names not in self._keys:
            self._keys[names] = self.record(source_digests.trial_digests(config))
        return self._keys[names]

    def record(self, hashes: Mapping[str, str | None]) -> str:
        """Likewise of sources that a trial ran elsewhere."""
        text = json.dumps(hashes, sort_keys=True)
        key = source_key(hashes)
        with self.ledger.write() as db:
            db.execute("INSERT OR IGNORE INTO sources VALUES (?,?)", [key, text])
        return key

    @property
    def evaluator(self) -> str | None:
        return source_digests.component_digest(EVALUATOR)[0]

    def of_job(self, config: Mapping[str, Any]) -> Code:
        """What a worker is to find as well, and which other hashes of its folder are one code."""
        names = [*components.list_components(config), EVALUATOR]
        return Code(
            hashes={name: source_digests.component_digest(name)[0] for name in names},
            revisions={name: components.get_revision(name) for name in names},
            same={name: tuple(sorted(self._one_code(name))) for name in names},
        )

    # ---------------------------------------------------------------- what was recorded

    def differing(self, key: str | None, evaluators: Iterable[str | None]) -> tuple[str, ...]:
        """The components of a recorded trial whose source is not today's.

        Args:
            key: of the trial's row; None: it was recorded before sources were kept.
            evaluators: hashes of what evaluated it.
        """
        if key is not None and key not in self._seen:
            self._seen[key] = self.others(self.ledger.source(key) or {})
        trials = self._seen.get(key or "", ())
        evaluated = {value for value in evaluators if value is not None}
        if any(not self._is_mine(EVALUATOR, value) for value in evaluated):
            trials += (EVALUATOR,)
        return trials

    def has_earlier_code(self, key: str | None) -> bool:
        """Return whether a recorded trial has digests of earlier code than today's."""
        recorded = (self.ledger.source(key) if key is not None else None) or {}
        return any(
            components.is_known(name) and value != source_digests.component_digest(name)[0]
            for name, value in recorded.items()
        )

    def others(self, hashes: Mapping[str, str | None]) -> tuple[str, ...]:
        """The components among these whose source is not today's."""
        return tuple(
            name
            for name, value in hashes.items()
            if components.is_known(name) and not self._is_mine(name, value)
        )

    def _is_mine(self, name: str, value: str | None) -> bool:
        return value is not None and value in self._one_code(name)

    def _one_code(self, name: str) -> set[str]:
        if name not in self._same:
            sources = self.ledger.rows(
                "SELECT one, other FROM same_code WHERE component=? AND revision=?",
                [name, components.get_revision(name)],
            )
            pairs = [(row["one"], row["other"]) for row in sources]
            self._same[name] = source_digests.equal_digests(name, pairs)
        return self._same[name]

    def accept(
        self,
        differing: Mapping[str, Differing],
        hashes: Mapping[str, Mapping[str, str | None]] | None = None,
    ) -> None:
        """The sources of these trials are the code as it is: from now on, not this once.

        Args:
            hashes: of trials whose sources the ledger does not have yet.
        """
        pairs: set[tuple[str, str, str, str]] = set()
        for trial_id, trial in differing.items():
            kept = (hashes or {}).get(trial_id) or self.ledger.source(trial.key) or {}
            recorded = {name: {value} for name, value in kept.items()}
            recorded[EVALUATOR] = set(trial.evaluators)
            for name in trial.components:
                now = source_digests.component_digest(name)[0]
                pairs |= {
                    (name, components.get_revision(name), before, now)
                    for before in recorded.get(name, ())
                    if before is not None and now is not None
                }
        with self.ledger.write() as db:
            db.executemany("INSERT OR IGNORE INTO same_code VALUES (?,?,?,?)", sorted(pairs))
        self._seen.clear()
        self._same.clear()


def source_key(hashes: Mapping[str, str | None]) -> str:
    """Return the key of the ledger's row that holds these hashes."""
    text = json.dumps(hashes, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def refusal(differing: Mapping[str, Differing]) -> ConfigError | None:
    """One line: which components differ, of how many trials, and what to do; None: nothing does."""
    if not differing:
        return None
    lines = summary(differing)
    unfinished = sum(trial.status != "done" for trial in differing.values())
    more = f"; {unfinished} of them unfinished or failed" if unfinished else ""
    return ConfigError(
        "source",
        f"other code than made {len(differing)} known trials: {'; '.join(lines)}{more}",
        "the code that made them",
        "Where numbers change, raise REVISION of what changed: it is then trained anew. Where they "
        "do not, give --same-code once. --force trains this sweep's trials again",
    )


def summary(differing: Mapping[str, Differing]) -> list[str]:
    """`method.ddml: source differs at REVISION 3; 40 trials`, the most frequent first."""
    counts = Counter(name for trial in differing.values() for name in trial.components)
    return [_line(name, count) for name, count in sorted(counts.items(), key=_by_count)]


def _by_count(entry: tuple[str, int]) -> tuple[int, str]:
    return -entry[1], entry[0]


def _line(name: str, count: int) -> str:
    trials = f"{count} trial" + ("" if count == 1 else "s")
    at = components.get_revision(name)
    word = f"{components.revision_name(name)} {at}"
    hashed, reason = source_digests.component_digest(name)
    if hashed is None:
        return f"{name}: its source cannot be read ({reason}), so that nothing tells; {trials}"
    return f"{name}: source differs at {word}; {trials}"
