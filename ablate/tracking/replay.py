"""`ablate ledger replay`: MLflow written from the ledger alone, when no run is under way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.ledger.schema import LedgerError
from ablate.tracking.store import Store, quiet_environment
from ablate.tracking.sync import Replica, first_line, is_away
from ablate.values.terminal import say
from reports.uri import scrubbed
from trainables.errors import ConfigError


def replay(ledger_path: str | Path, tracking_uri: str, sweep_id: str) -> tuple[int, dict[str, str]]:
    """Write a sweep from the ledger into an MLflow store; what is there already stays.

    Returns:
        How many trials it has, and those that the store refused, with the reason.

    Raises:
        KeyError: the ledger does not know the sweep.
        mlflow.exceptions.MlflowException, OSError: the store is away.
    """
    from ablate.plan.resolve import default_settings  # which brings torch

    quiet_environment()
    with Ledger(ledger_path) as ledger:
        ledger.release_dead()  # trials of a killed driver do not run any more
        replica = Replica(ledger, tracking_uri, sweep_id, defaults=default_settings())
        replica.sync(status="FINISHED", thorough=True)
        return len(replica.trial_ids()), replica.refused


def replay_all(
    path: Path, store: Store, sweeps: Sequence[str], device: str = "auto"
) -> dict[str, str]:
    """Write sweeps into a store; return the trials that it refused, with the reason.

    A sweep that has a report here is reported again, so that this store has the report too.

    Args:
        device: that reads what figures show of trained models, where that is not in their folders.

    Raises:
        ConfigError: the store does not answer.
        ReportError: a report that cannot be made of what the store has.
    """
    from ablate.tracking.views import compile_report

    refused: dict[str, str] = {}
    for sweep_id in sweeps:
        try:
            count, refused_here = replay(path, store.uri, sweep_id)
        except Exception as error:
            if isinstance(error, LedgerError) or not is_away(error):
                raise
            reason = scrubbed(first_line(error), store.uri)
            raise ConfigError(
                store.shown,
                f"no answer ({reason})",
                "a store that can be written",
                f"When it can: {store.command('ledger replay')}",
            ) from error
        refused |= refused_here
        say(f"sweep {sweep_id}: {count} trials are in {store.shown}")
        if any((store.out / "reports").glob(f"*-{sweep_id}/report.html")):
            compile_report(store, sweep_id, device)
    return refused
