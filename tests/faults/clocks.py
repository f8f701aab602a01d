"""A driver whose ledger is copied to storage, as a machine with a clock of its own:
`python -m tests.faults.clocks URI LEDGER SECONDS`. It lives until its input ends."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.storage.ledger_backup import LedgerBackup
from ablate.storage.store import Storage


def main(uri: str, ledger: Path, seconds: float) -> None:
    owner = replace(Owner.from_this_process(), host="another-host")
    copies = LedgerBackup(Storage(uri), ledger, owner, print, others=list, seconds=seconds)
    copies.restore_if_newer()
    with Ledger(ledger) as made:
        made.put_sweep("a", "a", {}, {})
        with copies:
            print(f"{time.time()}", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
