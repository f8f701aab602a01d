"""One evaluation by several processes: the metrics of one, to the bit, and a share of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.core.sharing import shared, subgroup
from tests.trainables.core_trials import config
from trainables.core import inputs
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.evaluation.tasks import Classification, Retrieval
from trainables.machine.group import ALONE, Group

BLOCK = 7  # images; the last block of a split is a smaller one
TASKS: dict[str, dict[str, Any]] = {
    # IDML draws in what it measures; of a group the first process alone takes that.
    "retrieval": {"method": {"name": "idml"}},
    "classification": {"task": "classification", "loss": {"name": "normsoftmax"}},
}


def read(group: Group, root: Path, cache: Path) -> dict[str, Any]:
    """By task: what was read of a split, of what, and how many images passed here."""
    inputs.IMAGE_BLOCK = BLOCK
    found: dict[str, Any] = {}
    for name, changes in TASKS.items():
        trial = config(root, backbone={"mode": "finetune"}, **changes)
        trainer = Trainer(trial, 0, Runtime("cpu", 1, cache), group=group)
        seen: list[Tensor] = []
        passed: list[int] = []
        _watch(trainer, seen, passed)
        metrics = trainer.looks.metrics("test", trainer.looks.task.metrics)
        images = sum(passed)
        whole = trainer.looks.evaluate("test", trainer.looks.task.metrics)
        found[name] = (metrics, seen[:1], images, whole, len(trainer.splits.test))
    return found


def _watch(trainer: Trainer, seen: list[Tensor], passed: list[int]) -> None:
    kind = Retrieval if isinstance(trainer.looks.task, Retrieval) else Classification

    class Watched(kind):  # type: ignore[misc,valid-type]
        def answer(self, network: Any, block: Tensor) -> Tensor:
            passed.append(len(block))
            answer: Tensor = super().answer(network, block)
            return answer

        def read(self, network: Any, answers: Tensor, *given: Any) -> dict[str, float]:
            seen.append(answers)
            metrics: dict[str, float] = super().read(network, answers, *given)
            return metrics

    trainer.looks.task = Watched()


def collected(group: Group, rows: int) -> Tensor:
    """Rows 0 … in parts of 3, of whatever share a process has."""
    whole = torch.arange(2.0 * rows, dtype=torch.float64).view(rows, 1, 2)
    return group.gather(group.local_shard(torch.split(whole, 3)), torch.device("cpu"))


def everything(group: Group, *given: Path) -> dict[str, Any]:
    pair = subgroup(group, 2)
    found: dict[str, Any] = {"by four": read(group, *given)}
    found["collected"] = [collected(group, rows) for rows in (2, 9, 31)]
    if pair is not None:
        found["by two"] = read(pair, *given)
    if group.is_main:
        found["by one"] = read(ALONE, *given)
    return found


@pytest.fixture(scope="module")
def found(drawn: Path, shared_cache: Path) -> list[dict[str, Any]]:
    return shared(4, everything, drawn, shared_cache)


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize(("kind", "size"), [("by two", 2), ("by four", 4)])
def test_embeddings_and_metrics_are_those_of_one(
    found: list[dict[str, Any]], task: str, kind: str, size: int
) -> None:
    alone, (answers,), images, told, total = found[0]["by one"][task]
    assert images == total > 3 * BLOCK
    first, *others = (each[kind][task] for each in found[:size])
    assert torch.equal(first[1][0], answers), "the same rows, in the same order, to the bit"
    assert first[0] == alone
    assert first[3] == told
    for metrics, seen, _, whole, _ in others:
        assert not seen, "metrics are computed once"
        assert (metrics, whole) == (alone, told)


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize(("kind", "size"), [("by two", 2), ("by four", 4)])
def test_each_embeds_its_share(
    found: list[dict[str, Any]], task: str, kind: str, size: int
) -> None:
    counts = [each[kind][task][2] for each in found[:size]]
    total = found[0]["by one"][task][2]
    assert sum(counts) == total
    assert max(counts) <= (-(-total // BLOCK) // size + 1) * BLOCK


def test_fewer_parts_than_processes_are_collected_too(found: list[dict[str, Any]]) -> None:
    for place, rows in enumerate((2, 9, 31)):
        whole = torch.arange(2.0 * rows, dtype=torch.float64).view(rows, 1, 2)
        assert torch.equal(found[0]["collected"][place], whole)


def test_one_process_collects_what_it_has() -> None:
    parts = torch.split(torch.arange(7.0), 2)
    assert ALONE.local_shard(parts) == parts
    assert torch.equal(ALONE.gather(parts, torch.device("cpu")), torch.arange(7.0))
