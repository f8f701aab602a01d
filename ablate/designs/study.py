"""The union of all designs, of this and other packages, distinguished by `design`."""

from typing import TYPE_CHECKING

from ablate.designs.base import DESIGNS, StudyBase
from trainables.config.registry import build_choice_annotation

if TYPE_CHECKING:
    Study = StudyBase
else:
    Study = build_choice_annotation(DESIGNS, "design")
