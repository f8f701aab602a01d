"""A registry with an index: names without imports, entry points of other packages after its own."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from trainables.words import registry
from trainables.words.registry import Registry


def test_names_are_known_before_anything_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = {"own": "fractions:Fraction", "other": "colorsys:rgb_to_hls"}
    entries = EntryPoints(
        EntryPoint(name, target, "ablate.things")
        for name, target in {"zeta": "no_such:thing", "alpha": "json:loads", "own": "x:y"}.items()
    )
    monkeypatch.setattr(registry, "load_entry_points", lambda: entries)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    things = Registry[object]("things", index=targets)
    assert list(things) == ["own", "other", "alpha", "zeta"]
    assert "alpha" in things and "beta" not in things and things.get("beta") is None
    assert "colorsys" not in sys.modules, "a name has imported its module"
    from fractions import Fraction
    from json import loads

    assert things["own"] is Fraction, "the index has precedence over an entry point"
    assert things.get("alpha") is loads
    with pytest.raises(KeyError):
        things["beta"]
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        things["zeta"]
