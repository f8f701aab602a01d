"""A study whose trials fail one after the other, each by the same fault of configuration, stops:
what it has left would fail too. It is missing, and the next run goes on with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.sweep.progression import Progression
from trainables.errors import ConfigError
from trainables.jobs.attempt import EQUAL_ERRORS


class EqualErrors:
    """halted: the studies that have stopped."""

    def __init__(self, progression: Progression) -> None:
        self.progression = progression
        self.halted: set[str] = set()
        self._errors: dict[str, Counter[str]] = {}  # study → how often each reason

    def count(self, studies: Iterable[str], last: Mapping[str, Any]) -> bool:
        """A trial of these studies has ended with this event; whether one of them stops by it."""
        before = len(self.halted)
        for study in studies:
            errors = self._errors.setdefault(study, Counter())
            if last["event"] == "final":
                errors.clear()
            elif _misconfigured(last):
                errors[last["reason"]] += 1
                if errors[last["reason"]] == EQUAL_ERRORS:
                    self._halt(study, last["reason"])
        return len(self.halted) > before

    def _halt(self, study: str, reason: str) -> None:
        state = self.progression.studies[study]
        if sum(map(self.progression.settled, state.cells)) == state.size:
            return  # those were its last
        self.halted.add(study)
        state.blocked = f"stopped after {EQUAL_ERRORS} equal configuration errors: {reason}"

    def behind(self, studies: Iterable[str], last: Mapping[str, Any]) -> bool:
        """Whether a trial was under way when its studies stopped, and ends as they did: it is one
        of those that the next run goes on with."""
        return _misconfigured(last) and self.halted.issuperset(studies)


def _misconfigured(last: Mapping[str, Any]) -> bool:
    """Whether a job's last event tells of an error of configuration."""
    failed = last["event"] == "failed"
    return failed and str(last["reason"]).startswith(ConfigError.__name__)
