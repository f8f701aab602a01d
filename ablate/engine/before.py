"""What is looked at before a run writes anything: wrong input then leaves no trace of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.engine.check_data import check_classes
from ablate.engine.check_weights import check_weights
from ablate.ledger.ledger import Ledger
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.values.terminal import say


@contextmanager
def as_it_is(path: Path) -> Iterator[Ledger]:
    """The ledger at `path`; where there is none an empty one elsewhere, so that none is made."""
    if path.is_file():
        with Ledger(path) as ledger:
            yield ledger
        return
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "none.sqlite") as ledger:
        yield ledger


def check_inputs(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Classes and weights of the trials that are left to do; images are `check_data`'s.

    Raises:
        ConfigError: too few classes for splits or batches, weights that cannot be had.
    """
    for text in check_classes(plan, progression, cache):
        say(f"warning: {text}", flush=True)
    check_weights(plan, progression, cache, device)
