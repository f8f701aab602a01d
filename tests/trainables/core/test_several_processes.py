"""One trial by several processes: the loss, the gradients, the metrics and the result of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.trainables.core import divided_steps as divided
from tests.trainables.core.sharing import shared, subgroup
from tests.trainables.core_trials import config, timeless
from trainables.backbones.backbone import Backbone
from trainables.core import assembly
from trainables.core.assembly import Pictures, check_processes
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.machine.group import ALONE, Group
from trainables.words.errors import ConfigError

CLOSE = 1e-6  # of float64, relative to the largest gradient; what is found is about 1e-15
CASES: tuple[tuple[str | dict[str, Any], str], ...] = (
    ("plain", "proxy_anchor"),
    ("plain", "multi_similarity"),
    ("plain", "margin"),
    ("plain", "soft_triple"),
    ("idml", "proxy_anchor"),
    ({"name": "idml", "mixing": "cutmix"}, "multi_similarity"),
    ("dvml", "triplet_l2"),
    ("nir", "proxy_anchor"),
)
IMAGES = 14  # which 4 does not divide

PLAIN = (Pictures.load_training_inputs, Pictures.iterate_blocks)
BLOCK = 7  # images that evaluation embeds at once; the last block of a split is a smaller one
TASKS: dict[str, dict[str, Any]] = {
    # IDML draws in what it measures; of a group the first process alone takes that.
    "retrieval": {"method": {"name": "idml"}},
    "classification": {"task": "classification", "loss": {"name": "normsoftmax"}},
}


def backbones() -> list[tuple[Backbone, int, slice]]:
    """Each with the side of its images, and which cases are tried on it."""
    one = slice(1)
    others = [(divided.convolutions(), 32, one), (divided.adapted(), 16, one)]
    return [(divided.transformer(), 16, slice(None)), *others]


def steps(group: Group, pair: Group | None) -> list[Any]:
    """Of all cases: by all processes at once, then by the first two of them in parts. The first
    process gives them whole, the others a hash, for they are to be alike."""
    results = []
    for backbone, side, tried in backbones():
        for case in CASES[tried]:
            options: dict[str, Any] = {"images": IMAGES, "side": side}
            results.append(divided.stepped(backbone, *case, group=group, **options))
            if pair is not None:
                results.append(divided.stepped(backbone, *case, 3, group=pair, **options))
    return results if group.is_main else [divided.digest(step) for step in results]


def exchanged(group: Group) -> tuple[Any, ...]:
    rows = torch.arange(20.0).view(10, 2)
    rows_here = group.local_shard(rows)
    tensors = [
        torch.full((2, 2), float(group.rank + 1)),
        torch.full((3,), 2.0, dtype=torch.float64),
    ]
    group.all_reduce_(tensors)
    first = [torch.full((2,), float(group.rank + 7), requires_grad=True)]
    group.broadcast_(first)
    reported = group.broadcast_object(lambda: {"rank": group.rank})
    with group.main_process_first():
        pass
    return len(rows_here), group.all_gather(rows_here * 2, 10), tensors, first[0].detach(), reported


def trained(group: Group, root: Path, cache: Path, folder: Path, until: int) -> Any:
    """A trial of 20 steps in float64, broken off before an epoch is saved: what it told and its
    weights; and at its end what it is worth."""
    Pictures.load_training_inputs = _train_in_float64(PLAIN[0])  # type: ignore[method-assign]
    Pictures.iterate_blocks = _blocks_in_float64(PLAIN[1])  # type: ignore[method-assign]
    trial = config(
        root,
        backbone={"mode": "finetune"},
        method={"name": "pel", "mixing": "mixup", "weights": "relative"},
        embedding={"init": "pca"},
        schedule={"name": "cosine", "warmup_epochs": 1},
        training={"epochs": 5},
    )
    trial_folder = folder if group.is_main else None
    runtime = Runtime("cpu", 1, cache, trial_folder, checkpoint_seconds=0.0)
    torch.set_default_dtype(torch.float64)
    trainer = Trainer(trial, 0, runtime, group=group)
    torch.set_default_dtype(torch.float32)
    for report in trainer.train_epochs():
        if report.epoch == until:
            break
    weights = {name: weight.clone() for name, weight in trainer.network.state_dict().items()}
    reported = [timeless(report.metrics) for report in trainer.history]
    final = trainer.finish(("val", "test")) if until == trial.training.epochs else None
    return trainer.steps, reported, weights, None if final is None else final.evaluations


def _train_in_float64(train: Any) -> Any:
    return lambda *given: train(*given).double()


def _blocks_in_float64(blocks: Any) -> Any:
    return lambda *given: (block.double() for block in blocks(*given))


def evaluated(group: Group, root: Path, cache: Path) -> dict[str, Any]:
    """By task: the metrics of a split, and how many images passed here and through all."""
    assembly.IMAGE_BLOCK = BLOCK
    results: dict[str, Any] = {}
    for name, changes in TASKS.items():
        trial = config(root, backbone={"mode": "finetune"}, **changes)
        evaluator = Trainer(trial, 0, Runtime("cpu", 1, cache), group=group).evaluator
        passed: list[int] = []
        assert evaluator.network.backbone is not None
        evaluator.network.backbone.register_forward_hook(
            lambda _, images, __, passed=passed: passed.append(len(images[0]))
        )
        metrics = evaluator.compute_metrics("test", evaluator.task.metrics)
        images = sum(passed)
        complete = evaluator.evaluate("test", evaluator.task.metrics)
        results[name] = (metrics, complete), images, len(evaluator.splits.test)
    assembly.IMAGE_BLOCK = 128
    return results


def collected(group: Group, rows: int) -> torch.Tensor:
    """Rows 0 … in parts of 3, of whatever share a process has."""
    complete = torch.arange(2.0 * rows, dtype=torch.float64).view(rows, 1, 2)
    return group.gather(group.local_shard(torch.split(complete, 3)), torch.device("cpu"))


def everything(group: Group, *given: Path) -> dict[str, Any]:
    """What one process of four finds: starting them takes longest."""
    pair, folder = subgroup(group, 2), given[-1]
    listening = {
        item.laddr.ip for item in psutil.Process().net_connections() if item.status == "LISTEN"
    }
    groups = {4: group, 2: pair, 1: ALONE if group.is_main else None}
    evaluations = {
        size: evaluated(item, *given[:2]) for size, item in groups.items() if item is not None
    }
    results = {"steps": steps(group, pair), "exchanged": exchanged(group), "listening": listening}
    results["evaluations"] = evaluations
    results["collected"] = [collected(group, rows) for rows in (2, 9, 31)]
    results["by four"] = trained(group, *given[:2], folder / "several", 2)
    if pair is not None:
        results["by two"] = trained(pair, *given[:2], folder / "several", 4)
    if group.is_main:
        results["by one"] = trained(ALONE, *given[:2], folder / "several", 5)
        results["alone"] = trained(ALONE, *given[:2], folder / "one", 5)
    return results


@pytest.fixture(scope="module")
def found(
    drawn: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    return shared(4, everything, drawn, shared_cache, tmp_path_factory.mktemp("trials"))


@pytest.mark.slow
def test_they_listen_on_loopback_alone(found: list[dict[str, Any]]) -> None:
    heard = set().union(*(item["listening"] for item in found))
    assert heard and heard <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.slow
def test_two_and_four_processes_take_the_step_of_one(found: list[dict[str, Any]]) -> None:
    first, *others = (item["steps"] for item in found)
    alone = [
        divided.stepped(backbone, *case, images=IMAGES, side=side)
        for backbone, side, tried in backbones()
        for case in CASES[tried]
    ]
    assert len(first) == 2 * len(alone)
    for number, step in enumerate(first):
        assert divided.max_difference(alone[number // 2], step) < CLOSE, number
    by_four, all_of_them = ([divided.digest(s) for s in steps] for steps in (first[::2], first))
    assert others == [all_of_them, by_four, by_four]


@pytest.mark.slow
def test_what_is_exchanged(found: list[dict[str, Any]]) -> None:
    for rank, item in enumerate(found):
        count, complete, summed, same, reported = item["exchanged"]
        assert count == (3, 3, 2, 2)[rank]
        assert torch.equal(complete, 2 * torch.arange(20.0).view(10, 2))
        assert torch.equal(summed[0], torch.full((2, 2), 10.0))
        assert torch.equal(summed[1], torch.full((3,), 8.0, dtype=torch.float64))
        assert torch.equal(same, torch.full((2,), 7.0))
        assert reported == {"rank": 0}


@pytest.mark.slow
def test_another_number_of_processes_goes_on_where_one_stopped(
    found: list[dict[str, Any]],
) -> None:
    """Four processes, then two, which train its second epoch again, then one, against all by one;
    all of them end alike, to the bit."""
    for kind, size in (("by four", 4), ("by two", 2)):
        states = [item[kind] for item in found[:size]]
        for reported, weights in ((reported, weights) for _, reported, weights, _ in states):
            assert reported == states[0][1]
            assert all(torch.equal(weights[name], w) for name, w in states[0][2].items())
    steps_alone, reported, weights, final = found[0]["alone"]
    steps_then, again, ended, at_last = found[0]["by one"]
    assert steps_alone == steps_then == 20
    for one, other in zip([*reported, *final.values()], [*again, *at_last.values()], strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    for name, weight in weights.items():
        torch.testing.assert_close(ended[name], weight, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("size", [2, 4])
def test_each_embeds_its_share_and_metrics_are_those_of_one(
    found: list[dict[str, Any]], task: str, size: int
) -> None:
    """To the bit."""
    alone, images, total = found[0]["evaluations"][1][task]
    assert images == total > 3 * BLOCK
    shares = [item["evaluations"][size][task] for item in found[:size]]
    assert all(metrics == alone for metrics, _, _ in shares)
    counts = [count for _, count, _ in shares]
    assert sum(counts) == total
    assert max(counts) <= (-(-total // BLOCK) // size + 1) * BLOCK


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, "processes: 3 processes .* backbone.mode: frozen"),
        (
            {"backbone": {"mode": "finetune", "freeze_bn": False}},
            "use statistics of the whole batch",
        ),
        (
            {
                "backbone": {"mode": "finetune"},
                "training": {"batch_size": 2, "per_class": 1},
            },
            "processes: 3 processes are more than the 2 images",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(drawn: Path, changes: Any, fault: str) -> None:
    trial = config(drawn, **changes)
    check_processes(trial, 1)
    with pytest.raises(ConfigError, match=fault):
        check_processes(trial, 3)
