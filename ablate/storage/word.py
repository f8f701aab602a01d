"""What is said of a ledger's copies: in storage, for other machines, and beside the ledger.

    ledger.json (storage)       {"ledger": which, "copy": how many there were, "owner": who drives,
                                "place": from where, "at": seconds since 1970, "over": ended}
    storage.json (beside it)    {"ledger": which, "copies": {storage: the copy it is ahead of}}

`ledger` is made up when a ledger is copied for the first time and stays with it on all machines: a
storage that has another one is none to go on from. The note is written before the first copy is,
so that a ledger without one was never stored.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from ablate.ledger.owner import STALE_SECONDS, Owner
from trainables.machine.files import write_json

log = logging.getLogger("ablate.engine")


@dataclass(frozen=True)
class Word:
    """The storage's. over: the driver has ended, and knew of no other."""

    ledger: str
    copy: int
    owner: Owner
    place: str
    at: float
    over: bool

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises ValueError, KeyError or TypeError: it is none."""
        told = json.loads(content)
        return cls(
            str(told["ledger"]),
            int(told["copy"]),
            Owner.parse(told["owner"]),
            str(told["place"]),
            float(told["at"]),
            bool(told["over"]),
        )

    def write(self, path: Path) -> None:
        told = {**vars(self), "owner": str(self.owner)}
        write_json(path, told)

    def alive(self, age: float) -> bool:
        """Whether that driver lives. age: seconds since its word was written, by the storage's
        clock: `at` is by its own, which may be minutes from ours."""
        return not self.over and self.owner.alive(time.time() - age, STALE_SECONDS)


@dataclass(frozen=True)
class Note:
    """The ledger's. ledger: empty where it was never stored. copies: by storage, as it is shown."""

    ledger: str = ""
    copies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError: it is there, and cannot be read."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(told["ledger"]), {key: int(n) for key, n in told["copies"].items()})
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.info("%s notes no copies: %r", path, error)  # then nothing is written over
            return cls()

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))
