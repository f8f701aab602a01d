"""The union of all schedulers, as the field `scheduler` of a study takes it.

A scheduled cell trains to a rung, an epoch at which it is paused, its state saved and its values
recorded. A decision lets it train to the next rung, wait, or stop. Population-based training is not
supported: it changes a trial's configuration during training, and identities need a fixed one.
"""

from typing import TYPE_CHECKING

from ablate.schedulers.base import SCHEDULERS, SchedulerBase
from trainables.config.registry import build_choice_annotation

if TYPE_CHECKING:
    Scheduler = SchedulerBase
else:
    Scheduler = build_choice_annotation(SCHEDULERS, "name")
