"""Which part of a batch's trials this process runs, where several share them out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainables.errors import ConfigError

SLURM = "slurm"
Item = TypeVar("Item")


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1, of `count`."""

    number: int = 1
    count: int = 1

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Every count-th one: neighbours, which often take alike, are dealt to all."""
        return list(items[self.number - 1 :: self.count])

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Shard:
        """`2/8`, or `slurm` for this task of a Slurm array.

        Raises:
            ConfigError: neither of them, or an array that does not number its tasks evenly.
        """
        if text == SLURM:
            return cls._of_slurm(environment)
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(
                "--shard",
                repr(text),
                "I/N with I from 1 to N, as 2/8, or slurm",
                "In a Slurm array give slurm",
            )
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def _of_slurm(cls, environment: Mapping[str, str]) -> Shard:
        names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "COUNT", "MIN", "MAX", "STEP")]
        texts = [environment.get(name, "1" if name.endswith("STEP") else "") for name in names]
        if not all(re.fullmatch(r"\d{1,9}", text) for text in texts):
            shown = ", ".join(f"{n}={t!r}" for n, t in zip(names, texts, strict=True))
            raise ConfigError(
                "--shard",
                f"slurm with {shown}",
                "the variables of a task of a Slurm array",
                "Submit with sbatch --array=1-N, or give --shard I/N",
            )
        task, count, least, most, step = map(int, texts)
        if least + (count - 1) * step != most:
            raise ConfigError(
                "--shard",
                f"slurm with an array of {count} tasks from {least} to {most} by {step}",
                "one without gaps",
                f"Submit with --array=1-{count}, or give --shard I/N by hand",
            )
        return cls((task - least) // step + 1, count)
