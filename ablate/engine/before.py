"""What is looked at before a run writes anything: wrong input then leaves no trace of a run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.engine.check_data import check_classes
from ablate.engine.check_training import Trainings
from ablate.engine.check_weights import check_weights
from ablate.ledger.ledger import Ledger
from ablate.ledger.sqlite_files import copy_unwritable
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.values.terminal import say
from trainables.errors import ConfigError


@contextmanager
def as_it_is(path: Path) -> Iterator[Ledger]:
    """Open the ledger at `path` for a plan, which changes nothing there.

    Where there is none, it is an empty one in a temporary folder. Where the folder cannot be
    written, it is a copy, because SQLite reads a database with a journal only where it may write.
    """
    if path.is_file() and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        with Ledger(path) as ledger:
            yield ledger
        return
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "ledger.sqlite"
        if path.is_file():
            try:
                copy_unwritable(path, other)
            except OSError as error:
                raise ConfigError(
                    str(path),
                    f"a ledger that cannot be read ({error.strerror or error})",
                    "a readable ledger, or none",
                    "Check its permissions, or give another --out",
                ) from error
        with Ledger(other) as ledger:
            yield ledger


def check_inputs(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Classes and weights of the trials that are left to do; images are `check_data`'s.

    Raises:
        ConfigError: too few classes for splits or batches, weights that cannot be had.
    """
    alone = check_classes(plan, progression, cache)
    for text in alone + Trainings(plan, progression, cache).warnings():
        say(f"warning: {text}", flush=True)
    check_weights(plan, progression, cache, device)
