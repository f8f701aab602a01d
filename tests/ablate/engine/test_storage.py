"""A driver with storage: who else drives in its folder is known to what brings a ledger here."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.engine import driver
from ablate.engine.live.presence import Presence
from ablate.engine.ray.resources import Request
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.storage.copies import WORD
from ablate.storage.store import Storage
from ablate.storage.trials import WHOLE, offer
from tests.ablate import specs
from trainables.core.runtime import EXPORT
from trainables.errors import ConfigError

OTHER = Owner("another-host", 7, 1.0)


def test_a_driver_alive_in_the_folder_keeps_its_ledger(tmp_path: Path) -> None:
    out, there = tmp_path / "runs", tmp_path / "there"
    settings = Settings(out=out, cache=tmp_path, request=Request(1, 0, "cpu"), storage=str(there))
    copies = driver._copies(settings, Owner.me())
    assert copies is not None
    with Ledger(settings.ledger), copies:
        pass
    word = json.loads((there / WORD).read_text())
    word |= {"place": "elsewhere", "copy": word["copy"] + 1}
    (there / WORD).write_text(json.dumps(word))
    os.utime(there / WORD, (time.time() - 1000,) * 2)
    with Presence(out, OTHER, "0123", "name", lambda: None):
        with pytest.raises(ConfigError, match="process 7 on another-host at work on that one"):
            driver._copies(settings, Owner.me())
        assert not [*out.glob("*aside*")]
    with Presence(out, Owner.me(), "0123", "name", lambda: None):
        driver._copies(settings, Owner.me())
    assert len([*out.glob("*aside*")]) == 1


def test_weights_come_from_storage_where_no_node_fetches_them(tmp_path: Path) -> None:
    there, plan = Storage(str(tmp_path / "there")), specs.plan()
    made = tmp_path / "made" / "t"
    made.mkdir(parents=True)
    for name in WHOLE:
        (made / name).write_text(name)
    offer(there, made.parent, "t")
    alone = Settings(
        out=tmp_path / "runs", cache=tmp_path, request=Request(1, 0, "cpu"), storage=there.given
    )
    jobs = driver._with_storage(alone.jobs(plan), alone)
    assert jobs.fetch is not None
    jobs.fetch("t")
    assert (jobs.trials / "t" / EXPORT).read_text() == EXPORT
    cluster = replace(alone, address="127.0.0.1:6379")
    assert driver._with_storage(cluster.jobs(plan), cluster).fetch is None
    nowhere = driver._with_storage(alone.jobs(plan), replace(alone, storage=None))
    assert nowhere.fetch is None and nowhere.forget is None
