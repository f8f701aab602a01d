"""Which method trains with which loss: proved for each pair, and the table of it for a reader.

python -m tests.trainables.test_support_matrix search_spaces/guides/components.md   (renews it)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tests.trainables.components import REQUIRED, trial
from tests.trainables.support import (
    CLASSES,
    EACH,
    FEATURES,
    PAIRS,
    Cell,
    cell,
    mark_slow_pairs,
    settings,
)
from trainables import streams
from trainables.core.network import Network, build_method
from trainables.core.optimizer import build_optimizer
from trainables.core.trace import Trace
from trainables.data.sampler import epoch_batches
from trainables.evaluation.metrics import evaluate
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS, Batch, Progress
from trainables.trial import TrialConfig

README = Path(__file__).parents[2] / "search_spaces" / "guides" / "components.md"
BEGIN, END = "<!-- support matrix -->", "<!-- end support matrix -->"
COMMAND = "python -m tests.trainables.test_support_matrix search_spaces/guides/components.md"

STEPS = 4


def is_taken(method: str, loss: str) -> bool:
    """Whether the method takes the loss, by default or with other options."""
    return cell(method, loss).options is not None


@pytest.mark.parametrize(("method", "loss"), mark_slow_pairs(list(METHODS), list(LOSSES), is_taken))
def test_a_pair_trains(method: str, loss: str) -> None:
    config = trial({"name": method, **(cell(method, loss).options or {})}, loss, **settings())
    assert isinstance(config, TrialConfig)
    trains(config)


def test_other_pairs_are_refused_with_a_reason() -> None:
    reasons = {pair: cell(*pair).reason for pair in PAIRS if not is_taken(*pair)}
    assert reasons
    unclear = {
        pair: reason
        for pair, reason in reasons.items()
        if not reason or ", not " not in reason or ": " not in reason or "\n" in reason
    }
    assert not unclear, "say what is expected, and what it is not"


def trains(config: TrialConfig) -> None:
    """A few steps as the core takes them, then an evaluation: all finite, every parameter reached.

    Not that every one moved: at random embeddings and two images a class, what pulls a margin's β
    up is exactly what pulls it down.
    """
    labels = torch.arange(CLASSES).repeat_interleave(EACH)
    x = torch.randn(len(labels), FEATURES, generator=streams.generator(0, "x"))
    method = build_method(config, features=FEATURES, classes=CLASSES, seed=0)
    network = Network(config, None, method, FEATURES)
    groups = network.param_groups("main")
    optimizer = build_optimizer(config.optimizer, groups, torch.device("cpu"))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    training = config.training
    batches = epoch_batches(
        labels, training.batch_size, training.per_class, 0, 0, method.loss.batch.layout
    )
    trace = Trace(1, 0)
    for step in range(STEPS):
        draws = {n: streams.generator(0, n, step) for n in ("prepare", "method", "loss")}
        progress = Progress(step=step, fraction=step / STEPS)
        at = batches[step % len(batches)]
        batch = method.prepare(Batch(x[at], labels[at][:, None]), draws["prepare"])
        state = method(batch.inputs, batch.labels, progress, draws["method"])
        terms = method.terms(state, batch.labels, progress, draws["loss"])
        optimizer.zero_grad(set_to_none=True)
        trace.add(terms).backward()
        trace.observe(method.observed())
        optimizer.step()
    trace.check()
    for name, parameter in network.named_parameters():
        assert parameter.isfinite().all(), name
        assert parameter.grad is not None, f"{name} was not reached"
    moved = [name for name, p in network.named_parameters() if not torch.equal(p, before[name])]
    assert "method.head.weight" in moved
    network.eval()
    with torch.inference_mode():
        z = network.embed(x)
        found = evaluate(z, labels, score=network.retrieval_score(), metrics=("recall_at_1",))
    assert 0 <= found["recall_at_1"] <= 1


# --- the table ----------------------------------------------------------------------------------


def block() -> str:
    """The block, from what is refused when a trial is read. That the rest trains is what
    the tests above show."""
    methods = sorted(METHODS, key=lambda name: (name != "plain", name))
    notes: dict[str, int] = {}
    rows = []
    for loss in LOSSES:
        shown = f"`{loss}`" + (f" ({REQUIRED[loss]['class']})" if loss in REQUIRED else "")
        marks = [mark(cell(method, loss), method, loss, notes) for method in methods]
        rows.append(f"| {shown} | " + " | ".join(marks) + " |")
    head = "| loss | " + " | ".join(f"`{method}`" for method in methods) + " |"
    rule = "| :-- | " + " | ".join(":-:" for _ in methods) + " |"
    lines = [
        "Which method trains with which loss: ✓ with the method's defaults. A dash is refused",
        "before anything runs, with the reason noted.",
        "",
        head,
        rule,
        *rows,
        "",
        *(f"{number}. {text}" for text, number in notes.items()),
    ]
    return "\n".join(lines)


def mark(found: Cell, method: str, loss: str, notes: dict[str, int]) -> str:
    if found.reason is None:
        return "✓"
    # One note for one reason, whichever loss it names.
    text = re.sub(rf"(loss )?\b{loss}\b", "this loss", found.reason)
    text = f"`{method}`: expected {text}"
    if found.options:
        wanted = ", ".join(f"`{name}: {value}`" for name, value in found.options.items())
        text = f"{text}. ✓ with {wanted}"
    number = notes.setdefault(text, len(notes) + 1)
    return f"{'–' if found.options is None else '✓'} <sup>{number}</sup>"


def filled(readme: str) -> str:
    """That README with the block as it is now; a ValueError if its two lines are not there."""
    before, after = readme[: readme.index(BEGIN)], readme[readme.index(END) + len(END) :]
    return f"{before}{BEGIN}\n{block()}\n{END}{after}"


def test_the_readme_of_search_spaces_shows_it() -> None:
    text = README.read_text(encoding="utf-8")
    assert filled(text) == text, f"the support matrix is stale; run: {COMMAND}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
