"""A driver with storage: who else drives in its folder is known to what brings a ledger here."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from ablate.engine import driver
from ablate.engine.driver_status import DriverStatusFile
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger, Owner
from ablate.plugins.storage import LEASE
from trainables.words.errors import ConfigError

OTHER = Owner("another-host", 7, 1.0)


def test_a_driver_alive_in_the_folder_keeps_its_ledger(tmp_path: Path) -> None:
    out, there = tmp_path / "runs", tmp_path / "there"
    settings = Settings(out=out, cache=tmp_path, request=Request(1, 0, "cpu"), storage=str(there))
    copies = driver._open_storage(settings, Owner.from_this_process())
    assert copies is not None
    with Ledger(settings.ledger) as ledger, copies.keep(ledger):
        pass
    word = json.loads((there / LEASE).read_text())
    word |= {"place": "elsewhere", "copy": word["copy"] + 1}
    (there / LEASE).write_text(json.dumps(word))
    os.utime(there / LEASE, (time.time() - 1000,) * 2)
    with DriverStatusFile(out, OTHER, "0123", "name", lambda: None):
        with pytest.raises(ConfigError, match="process 7 on another-host uses"):
            driver._open_storage(settings, Owner.from_this_process())
        assert not [*out.glob("*aside*")]
    with DriverStatusFile(out, Owner.from_this_process(), "0123", "name", lambda: None):
        driver._open_storage(settings, Owner.from_this_process())
    assert len([*out.glob("*aside*")]) == 1
