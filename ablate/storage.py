"""Define storage: what keeps a run's files in a place that outlives this machine (`--storage`).

Plug-ins do the work. A plug-in registers a subclass of `RunStorage` under the scheme of the
addresses that it takes (`s3`), or under "" for all addresses that no other plug-in takes.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ablate.ledger.ledger import Ledger, Owner
from trainables.words.errors import ConfigError
from trainables.words.registry import Registry

OPTION = "--storage"
ENV = "env:"
STORAGES: "Registry[type[RunStorage]]" = Registry("storages", "ablate.plugins")


def expand_variable(address: str, option: str) -> str:
    """Return an address or, for `env:NAME`, the value of the environment variable NAME."""
    if not address.startswith(ENV):
        return address
    name = address.removeprefix(ENV)
    if value := os.environ.get(name, ""):
        return value
    raise ConfigError(
        option,
        f"{address!r} names an environment variable that is not set",
        f"Run `export {name or 'NAME'}=URI`, or give the URI itself",
    )


class TrialFiles(Protocol):
    """The checkpoints and results of trials in storage, as the driver sees them.

    Attributes:
        address: the place, as a worker takes it.
        remote: whether trials run in folders of other nodes.
    """

    address: str
    remote: bool

    def list_attempts(self, trial_id: str) -> tuple[str, ...]:
        """Return the folder in storage of each attempt at a trial, the newest first."""

    def record_checkpoint(self, trial_id: str, checkpoint: str) -> None:
        """Note a new checkpoint of a trial."""

    def finish_trial(self, trial_id: str) -> None:
        """Fetch an ended trial's results, and delete its older checkpoints."""

    def remove_trial(self, trial_id: str) -> None:
        """Delete all checkpoints of a trial from storage."""

    def upload_trial(self, trial_id: str) -> None:
        """Upload a trial that this machine finished without storage."""

    def fetch_trial(self, trial_id: str) -> None:
        """Download a trial's results, unless they are here already."""


@dataclass
class RunStorage(ABC):
    """Keep copies of one run's ledger and trials.

    Attributes:
        address: where.
        out: the output folder, which has the ledger.
        remote: whether trials run in folders of other nodes.
        print_line: receives lines for the user.
        list_other_drivers: returns the other live drivers of the ledger.
    """

    address: str
    out: Path
    owner: Owner
    remote: bool
    print_line: Callable[[str], None]
    list_other_drivers: Callable[[], Sequence[Owner]]

    @abstractmethod
    def restore_ledger(self) -> None:
        """Replace the local ledger by that of the storage, if the storage's is newer."""

    @abstractmethod
    def keep(self, ledger: Ledger) -> AbstractContextManager[TrialFiles]:
        """Keep copies of the ledger and of trials for as long as the context lasts."""

    @staticmethod
    @abstractmethod
    def fetch_weights(trials: Path, trial_id: str) -> None:
        """Download a finished trial's files if a run has stored them, and they are not here."""


def find_storage(address: str) -> type[RunStorage]:
    """Return the plug-in that takes an address; raise ConfigError if there is none."""
    scheme, separator, _ = expand_variable(address, OPTION).partition("://")
    plugin = (STORAGES.get(scheme) if separator else None) or STORAGES.get("")
    if plugin is None:
        raise ConfigError(OPTION, "no plug-in takes this address", "Install one, or leave it out")
    return plugin


def fetch_weights(trials: Path, trial_id: str) -> None:
    """Download a finished trial's files from the storage of its run, if they are not here."""
    for name in STORAGES:
        STORAGES[name].fetch_weights(trials, trial_id)
