"""Numbers that a REVISION stands for.

Where one of these fails, a component gives other numbers than before: raise its REVISION, so
that no stored result is taken for a new one, and write its new numbers beside it.

They are computed in float64, whose rounding is 1e-16, and held to 1e-9: equal on every processor,
and other than a changed formula would leave them. Bits are equal on one machine alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.trainables.components import labels_for, loss_options
from trainables.core.network import build_method
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS, Progress
from trainables.trial import TrialConfig

FEATURES, D, C, B = 6, 4, 3, 6
FOLDER = Path(__file__).parent / "golden"  # one file per component, <kind>.<name>.json
METHODS_ON = ("proxy_anchor",)  # losses that a method's golden values are taken on


def wave(*shape: int, shift: float) -> Tensor:
    """Fixed numbers that need no generator."""
    n = torch.Size(shape).numel()
    return torch.sin(1.7 * torch.arange(n, dtype=torch.float64) + shift).view(shape)


def measured(method: str, loss: str) -> dict[str, float]:
    config = TrialConfig(method={"name": method}, loss=loss_options(loss), embedding={"dim": D})
    built = build_method(config, features=FEATURES, classes=C, seed=0).double()
    with torch.no_grad():
        for place, parameter in enumerate(built.parameters()):
            parameter.copy_(wave(*parameter.shape, shift=place))
    labels = labels_for(loss, B, C)
    generator = torch.Generator().manual_seed(0)
    state = built(wave(B, FEATURES, shift=0.5), labels, Progress(), generator)
    terms = built.terms(state, labels, Progress(), generator)
    return {name: term.value.item() for name, term in terms.items()}


def components() -> list[tuple[str, str, int, list[tuple[str, str]]]]:
    """(kind, name, revision, [(method, loss) whose terms are its numbers])."""
    losses = [("loss", name, LOSSES[name].REVISION, [("plain", name)]) for name in LOSSES]
    methods = [
        ("method", name, METHODS[name].REVISION, [(name, loss) for loss in METHODS_ON])
        for name in METHODS
    ]
    return losses + methods


def golden(kind: str, name: str) -> Path:
    return FOLDER / f"{kind}.{name}.json"


@pytest.mark.parametrize(("kind", "name", "revision", "trials"), components())
def test_golden_values(kind: str, name: str, revision: int, trials: list[tuple[str, str]]) -> None:
    """New component, or new REVISION: `python -m tests.trainables.test_golden KIND NAME`."""
    known = json.loads(golden(kind, name).read_text())
    assert known["revision"] == revision
    for method, loss in trials:
        expected = known["terms"][f"{method} on {loss}"]
        assert measured(method, loss) == pytest.approx(expected, rel=1e-9), (method, loss)


def test_no_golden_values_without_a_component() -> None:
    known = {golden(kind, name) for kind, name, _, _ in components()}
    assert set(FOLDER.glob("*.json")) == known


if __name__ == "__main__":
    for kind, name, revision, trials in components():
        if [kind, name] == sys.argv[1:]:
            terms = {f"{method} on {loss}": measured(method, loss) for method, loss in trials}
            text = json.dumps({"revision": revision, "terms": terms}, indent=2)
            golden(kind, name).write_text(text + "\n")
