"""Print where MLflow's pages show the newest sweeps of a store: `make ui` does.

python -m reports.stores.addresses sqlite:///runs/mlflow.db http://127.0.0.1:5000/
"""

from __future__ import annotations

import sys

from reports.errors import ReportError
from reports.stores.below import search
from reports.stores.client import open_client
from reports.uri import SHARED_VIEW, sweep_page

NEWEST = 5


def sweep_addresses(tracking_uri: str, server: str) -> list[tuple[str, str]]:
    """Return (name, address) of the newest sweeps of a store, the newest first.

    A sweep that an earlier version wrote has no view of its own and is left out.
    """
    client = open_client(tracking_uri)
    experiments = {each.experiment_id: each.tags for each in client.search_experiments()}
    runs = search(client, list(experiments), "tags.`ablate.kind` = 'sweep'")
    found: dict[tuple[str, str], str] = {}
    for run in reversed(runs):
        key = run.info.experiment_id, run.data.tags["ablate.sweep_id"]
        if f"{SHARED_VIEW}{key[1]}" in experiments[key[0]]:
            found.setdefault(key, f"{run.info.run_name} ({key[1]})")
    return [(name, server + sweep_page(*key)) for key, name in list(found.items())[:NEWEST]]


if __name__ == "__main__":
    try:
        for name, address in sweep_addresses(*sys.argv[1:]):
            print(f"{name}: {address}", flush=True)
    except ReportError as error:
        sys.exit(str(error))
