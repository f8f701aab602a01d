"""Compute the values of a search axis with a step as YAML writes them, in decimal.

In floats 0.1 + 2 · 0.1 is 0.30000000000000004, which lies above an axis that ends at 0.3. Samplers
of version 0.2 and before proposed such values, so ledgers have them.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

TINY = 1e-9  # part of a step by which a value or an end may miss a level


@dataclass(frozen=True)
class Levels:
    """The values low + i · step up to `high`, which need not be one of them."""

    low: float
    high: float
    step: float

    @property
    def count(self) -> int:
        low, high, step = (Decimal(str(number)) for number in (self.low, self.high, self.step))
        return int((high - low) / step + Decimal(TINY)) + 1

    @property
    def end(self) -> float:
        """The highest level."""
        return self.compute_value(self.count - 1)

    def compute_value(self, index: int) -> float:
        """Return level number `index`, from 0."""
        value = Decimal(str(self.low)) + index * Decimal(str(self.step))
        return float(min(value, Decimal(str(self.high))))

    def find_nearest(self, value: float) -> int:
        """Return the number of the level nearest to a value."""
        return min(max(round((value - self.low) / self.step), 0), self.count - 1)

    def to_level(self, value: float) -> float:
        """Return the level from which a value differs by rounding alone; else the value itself."""
        if not self.low - self.step < value < self.high + self.step:
            return value
        level = self.compute_value(self.find_nearest(value))
        is_level = math.isclose(value, level, rel_tol=1e-15, abs_tol=TINY * self.step)
        return level if is_level else value
