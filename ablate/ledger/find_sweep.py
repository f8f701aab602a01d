"""Which sweep of a ledger a person means."""

from __future__ import annotations

from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from trainables.errors import ConfigError


def find_sweep(ledger: Ledger, given: str | None, place: str) -> str:
    """The id of the sweep of this id or name; of several of one name, or without any, the latest.

    Raises:
        ConfigError: at `place`; there is none.
    """
    sweeps = queries.sweeps(ledger)[::-1]
    for sweep in sweeps:
        if given in (None, sweep["sweep_id"], sweep["name"]):
            return str(sweep["sweep_id"])
    known = ", ".join(f"{s['name']} ({s['sweep_id']})" for s in sweeps) or "none"
    raise ConfigError(
        place, repr(given) if given else "no sweep", f"one of: {known}",
        "`ablate ledger ls` lists them",
    )  # fmt: skip
