"""Questions to the ledger that a command asks once."""

from __future__ import annotations

from ablate.ledger.records import Records, Row
from trainables.errors import ConfigError


def trials(records: Records) -> list[Row]:
    """All columns of all trials, in the order in which they were first claimed."""
    return records.rows("SELECT * FROM trials ORDER BY created, trial_id")


def trials_called(records: Records, beginning: str) -> list[str]:
    """The ids that begin so."""
    rows = records.rows(
        "SELECT trial_id FROM trials WHERE trial_id LIKE ? || '%' ORDER BY trial_id", [beginning]
    )
    return [row["trial_id"] for row in rows]


def statuses(records: Records) -> list[Row]:
    """status, n, seconds of training."""
    return records.rows(
        "SELECT status, count(*) AS n, coalesce(sum(seconds), 0) AS seconds FROM trials "
        "GROUP BY status"
    )


def reasons(records: Records) -> list[Row]:
    """trial_id, status, reason of the trials that have one."""
    return records.rows(
        "SELECT trial_id, status, reason FROM trials WHERE reason IS NOT NULL ORDER BY created"
    )


def failures(records: Records, sweep_id: str) -> list[Row]:
    """reason, n, trial (one of them) of a sweep's failed trials, the most frequent first."""
    return records.rows(
        "SELECT reason, count(*) AS n, min(trial_id) AS trial FROM trials WHERE "
        "status='failed' AND trial_id IN (SELECT trial_id FROM cells WHERE sweep_id=?) "
        "GROUP BY reason ORDER BY n DESC, reason",
        [sweep_id],
    )


def finished(records: Records) -> list[Row]:
    """config, seconds, epochs of the trials that are done."""
    return records.rows("SELECT config_json, seconds, epochs FROM trials WHERE status='done'")


def owners(records: Records) -> list[Row]:
    """owner, heartbeat of the trials that somebody holds."""
    return records.rows("SELECT owner, heartbeat FROM trials WHERE owner IS NOT NULL")


def sweeps(records: Records) -> list[Row]:
    """sweep_id, name, n: the cells known of it; the oldest sweep first."""
    return records.rows(
        "SELECT sweep_id, name, (SELECT count(*) FROM cells WHERE "
        "cells.sweep_id=sweeps.sweep_id) AS n FROM sweeps ORDER BY created, rowid"
    )


def find_sweep(records: Records, named: str | None, place: str) -> str:
    """The id of the sweep of this id or name; of several of one name, or without any, the latest.

    Raises:
        ConfigError: at `place`; there is none.
    """
    latest_first = sweeps(records)[::-1]
    for sweep in latest_first:
        if named in (None, sweep["sweep_id"], sweep["name"]):
            return str(sweep["sweep_id"])
    known = ", ".join(f"{s['name']} ({s['sweep_id']})" for s in latest_first) or "none"
    what = repr(named) if named else "no sweep"
    raise ConfigError(place, what, f"one of: {known}", "`ablate ledger ls` lists them")
