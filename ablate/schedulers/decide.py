"""Schedulers: which cells of a study go on training, as pure functions of what is known.

A scheduled cell runs in legs. Each leg ends at a rung, an epoch at which the cell is paused with
its state saved and its best value so far is a fact of the ledger; a decision says whether it goes
on to the next rung, waits, or is stopped. Population-based training is left out: it changes a
trial's configuration while it runs, and what has no fixed configuration has no identity here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.schedulers.base import SCHEDULERS, SchedulerBase
from trainables.config.registry import build_choice_annotation

if TYPE_CHECKING:
    Scheduler = SchedulerBase
else:
    Scheduler = build_choice_annotation(SCHEDULERS, "name")
