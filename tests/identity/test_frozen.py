"""Frozen specs keep their sweep ids, their searches' keys and the ids of their trials, for ever.

Where this fails, results that somebody has are not found again. A change that alters numbers raises
the REVISION of its component instead, which `frozen.py` leaves aside; an option that comes later is
off by default, and None then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.identity import frozen
from trainables.core.identity import collect_component_revisions
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

SPECS = sorted(path.name for path in frozen.SPECS.glob("*.yaml"))


def test_every_frozen_spec_is_known() -> None:
    assert SPECS
    assert frozen.known().keys() - {"revision"} == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_identities(name: str, tmp_path: Path) -> None:
    with frozen.frozen_revisions() as met:
        found = frozen.identities(frozen.SPECS / name, tmp_path)
    assert found == frozen.known()[name]
    assert met.keys() <= frozen.revisions().keys(), "a component that was no part of these trials"


def test_a_revision_only_rises() -> None:
    kinds = {"loss": LOSSES, "method": METHODS, "data": DATASETS}
    shared = collect_component_revisions(TrialConfig())
    for name, then in frozen.revisions().items():
        kind, _, component = name.partition(".")
        now = kinds[kind][component].REVISION if component else shared[name]
        assert now >= then, f"{name}: REVISION {now}, and {then} before"


def test_what_is_frozen_stays() -> None:
    with pytest.raises(SystemExit, match=r"ddml\.yaml is frozen"):
        frozen.freeze("ddml.yaml")


def test_a_change_of_a_default_is_seen(tmp_path: Path) -> None:
    """So that the comparison cannot pass by looking at nothing."""
    spec = tmp_path / "ddml.yaml"
    text = (frozen.SPECS / "ddml.yaml").read_text(encoding="utf-8")
    spec.write_text(text.replace("dim: 256", "dim: 255"), encoding="utf-8")
    assert text.count("dim: 256") == 1
    with frozen.frozen_revisions():
        found = frozen.identities(spec, tmp_path)
    stored = frozen.known()["ddml.yaml"]
    assert [line.rpartition("\t")[0] for line in found] == [
        line.rpartition("\t")[0] for line in stored
    ]
    same = set(found) & set(stored)
    assert same == set(), same
