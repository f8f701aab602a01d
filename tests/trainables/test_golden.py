"""Numbers that a REVISION stands for.

Where one of these fails, a component gives other numbers than before: raise its REVISION, so
that no stored result is taken for a new one, and write its new numbers beside it.

They are computed in float64, whose rounding is 1e-16, and held to 1e-9: equal on every processor,
and other than a changed formula would leave them. Bits are equal on one machine alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainables.golden_values import components, measured

FOLDER = Path(__file__).parent / "golden"  # one file per component, <kind>.<name>.json


def golden(kind: str, name: str) -> Path:
    return FOLDER / f"{kind}.{name}.json"


@pytest.mark.parametrize(("kind", "name", "revision", "trials"), components())
def test_golden_values(kind: str, name: str, revision: int, trials: list[tuple[str, str]]) -> None:
    """New component, or new REVISION: `make golden`."""
    stored = json.loads(golden(kind, name).read_text())
    assert stored["revision"] == revision
    for method, loss in trials:
        expected = stored["terms"][f"{method} on {loss}"]
        assert measured(method, loss) == pytest.approx(expected, rel=1e-9), (method, loss)


def test_no_golden_values_without_a_component() -> None:
    stored = {golden(kind, name) for kind, name, _, _ in components()}
    assert set(FOLDER.glob("*.json")) == stored


def write_new() -> list[str]:
    """Write the values of components that are new or whose REVISION was raised; return their names.

    Files of components that are gone are deleted; those at the same REVISION stay as they are.
    """
    written = []
    for kind, name, revision, trials in components():
        path = golden(kind, name)
        if not path.exists() or json.loads(path.read_text())["revision"] != revision:
            terms = {f"{method} on {loss}": measured(method, loss) for method, loss in trials}
            text = json.dumps({"revision": revision, "terms": terms}, indent=2)
            path.write_text(text + "\n")
            written.append(f"{kind}.{name}")
    for path in set(FOLDER.glob("*.json")) - {
        golden(kind, name) for kind, name, *_ in components()
    }:
        path.unlink()
    return written


if __name__ == "__main__":
    print("golden values written:", ", ".join(write_new()) or "none")
