"""Schedulers: which cells of a study go on training, as pure functions of what is known.

A scheduled cell runs in legs. Each leg ends at a rung, an epoch at which the cell is paused with
its state saved and its best value so far is a fact of the ledger; a decision says whether it goes
on to the next rung, waits, or is stopped. Decisions are computed from facts alone, so that a
killed sweep goes on as if nothing had happened. Those of `successive_halving` and `hyperband` do
not depend on the order of results either; `asha` and `median` decide on what is known at
the time, as their purpose is not to wait. Population-based training is left out: it changes a
trial's configuration while it runs, and what has no fixed configuration has no identity here.
Fidelities other than epochs (image size, heads before whole networks) are configurations of
their own: design `promote`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.schedulers.base import SCHEDULERS, SchedulerBase
from trainables.config.registry import one_of

if TYPE_CHECKING:
    Scheduler = SchedulerBase
else:
    Scheduler = one_of(SCHEDULERS, "name")
