"""No term drowns the metric at the start, on frozen features and on a backbone that trains.

`python -m tests.trainables.methods.test_starts [NAME …]` prints the ratios of `start_cases.py`'s
entries, in both places. A scale that is wrong by much is seen here before a search is spent on it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.trainables.methods.start_bounds import Start, broken, ratios
from tests.trainables.methods.start_cases import STARTS
from tests.trainables.methods.starts import PLACES, Place


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.name)
def test_every_term_is_within_its_bounds(start: Start, place: Place, shared_cache: Path) -> None:
    found = ratios(start, place, shared_cache)
    assert found.keys() == start.bounds.keys()
    assert not list(broken(start.bounds, found))


DROWNED = [(start, name) for start in STARTS for name in start.drowned]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("start", "name"), DROWNED, ids=[f"{start.name}: {name}" for start, name in DROWNED]
)
def test_a_drowned_start_is_seen(start: Start, name: str, place: Place, shared_cache: Path) -> None:
    found = ratios(start, place, shared_cache, **start.drowned[name])
    assert list(broken(start.bounds, found))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for given in STARTS:
            if not sys.argv[1:] or given.name in sys.argv[1:]:
                for where in PLACES:
                    print(given.name, where)
                    for term, each in ratios(given, where, Path(folder)).items():
                        print(f"  {term}: {each}")
