"""The loop: what it reports, that it repeats itself, and what its options do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.core_trials import config, timeless, train
from trainables.core.runtime import EpochReport, FinalReport, Runtime
from trainables.core.trainer import Trainer
from trainables.losses.proxy_anchor import ProxyAnchor
from trainables.methods.ddml import DDML
from trainables.words.errors import ConfigError, TrialFailure

FINETUNE = {"backbone": {"mode": "finetune"}}


@pytest.fixture
def runtime(shared_cache: Path) -> Runtime:
    return Runtime(device="cpu", threads=1, cache_dir=shared_cache)


def run(trial: Any, runtime: Runtime, seed: int = 0) -> tuple[list[EpochReport], FinalReport]:
    reports: list[EpochReport] = []
    return reports, train(trial, seed, runtime, reports.append, ("val", "test"))


def test_reports(drawn: Path, runtime: Runtime) -> None:
    trial = config(drawn, method={"name": "ddml", "gamma": 0.0}, selection={"every": 2})
    reports, final = run(trial, runtime)
    assert [r.epoch for r in reports] == [1, 2, 3, 4]
    steps = reports[0].steps
    assert [r.steps for r in reports] == [steps, 2 * steps, 3 * steps, 4 * steps]
    first, second = reports[0].metrics, reports[1].metrics
    assert {"lr/head", "lr/proxies", "lr/auxiliary", "time/epoch_s"} <= set(first)
    assert first["term/split/weight"] == 0.0
    assert first["term/split/value"] > 0
    names = ("metric", "agnostic", "specific", "split")
    total = sum(first[f"term/{n}/value"] * first[f"term/{n}/weight"] for n in names)
    assert first["train/loss"] == pytest.approx(total)
    assert "val/map_at_r" not in first
    assert "best/val/map_at_r" not in first
    assert {"val/recall_at_1", "val/recall_at_8", "val/r_precision"} <= set(second)
    best = max(reports[1:], key=lambda r: r.metrics.get("val/map_at_r", -1.0))
    assert final.best_epoch == best.epoch
    assert reports[-1].metrics["best/val/map_at_r"] == best.metrics["val/map_at_r"]
    assert final.evaluations["val"]["map_at_r"] == best.metrics["val/map_at_r"]
    assert set(final.evaluations["test"]) >= {"recall_at_1", "map_at_r", "nmi"}
    assert final.export is None
    assert final.history == reports
    assert final.provenance["steps_this_process"] == final.steps == reports[-1].steps


def test_the_last_epoch_is_kept_where_it_is_asked_for(drawn: Path, runtime: Runtime) -> None:
    usual = {"optimizer": {"lr": 0.05}, "training": {"epochs": 6}}  # so high that later is worse
    best, last = config(drawn, **usual), config(drawn, **usual, selection={"keep": "last"})
    (reports, first), (again, final) = run(best, runtime), run(last, runtime)
    values = [report.metrics["val/map_at_r"] for report in reports]
    assert first.best_epoch < 6 and max(values) > values[-1]
    assert [report.metrics["val/map_at_r"] for report in again] == values  # the same training
    assert final.best_epoch == 6
    assert final.evaluations["val"]["map_at_r"] == values[-1]
    assert again[-1].metrics["best/val/map_at_r"] == values[-1]


def test_a_curve_of_the_training_classes_changes_no_other_number(
    drawn: Path, runtime: Runtime
) -> None:
    trial = {"method": {"name": "ddml"}, "selection": {"every": 2}}
    bare, _ = run(config(drawn, **trial), runtime)
    trial["selection"]["train_curve"] = True
    looked, final = run(config(drawn, **trial), runtime)
    assert "train/map_at_r" not in looked[0].metrics
    assert 0 < looked[1].metrics["train/map_at_r"] <= 1
    for one, other in zip(bare, looked, strict=True):
        same = one.metrics.keys() - {"time/epoch_s"}
        assert {name: other.metrics[name] for name in same} == {
            name: one.metrics[name] for name in same
        }
    assert "train" not in final.evaluations  # a split that nobody asked to have read


def test_paper_protocol_selects_on_test(drawn: Path, runtime: Runtime) -> None:
    trial = config(drawn, data={"split": {"protocol": "paper"}}, training={"epochs": 1})
    reports: list[EpochReport] = []
    train(trial, 0, runtime, reports.append, ("test",))
    assert "best/test/map_at_r" in reports[0].metrics
    assert not any(name.startswith(("val/", "best/val")) for name in reports[0].metrics)


def test_restarts_of_k_means_reach_the_evaluation(
    drawn: Path, runtime: Runtime, k_means_starts: list[int]
) -> None:
    trial = config(drawn, evaluation={"restarts": 7}, training={"epochs": 1})
    run(trial, runtime)
    assert k_means_starts == [7, 7], "once for each split, at the end"
    run(config(drawn, training={"epochs": 1}), runtime)
    assert k_means_starts == [7, 7, 1, 1]


@pytest.mark.parametrize("changes", [{}, FINETUNE], ids=["frozen", "finetune"])
def test_two_runs_give_the_same_bytes(
    changes: Any, drawn: Path, runtime: Runtime, tmp_path: Path
) -> None:
    trial = config(drawn, method={"name": "ddml"}, **changes, training={"epochs": 2})
    actual = []
    for name in ("one", "two"):
        torch.manual_seed(len(actual))  # the global generator must not matter
        torch.rand(7)
        rendezvous = Runtime("cpu", 1, runtime.cache_dir, tmp_path / name)
        reports, final = run(trial, rendezvous)
        export = (tmp_path / name / "best.safetensors").read_bytes()
        actual.append(([timeless(r.metrics) for r in reports], final.evaluations, export))
    assert actual[0] == actual[1]
    other, _ = run(trial, runtime, seed=1)
    assert timeless(other[0].metrics) != actual[0][0][0]


@pytest.mark.parametrize("loss", ["normsoftmax", "proxy_anchor"])
@pytest.mark.parametrize("mode", ["frozen", "finetune"])
def test_neutral_ddml_trains_as_plain_bit_for_bit(
    loss: str, mode: str, drawn: Path, runtime: Runtime
) -> None:
    """The whole trajectory, also under norm clipping, which looks at all gradients at once."""
    weights = []
    metrics = []
    for method in ({"name": "plain"}, {"name": "ddml", **DDML.NEUTRAL}):
        trial = config(
            drawn,
            loss={"name": loss},
            method=method,
            backbone={"mode": mode},
            training={"epochs": 3, "clip_norm": 0.5},
        )
        trainer = Trainer(trial, 0, runtime)
        metrics.append([r.metrics for r in trainer.train_epochs()])
        weights.append(trainer.network.state_dict())
    for plain, neutral in zip(*metrics, strict=True):
        for name, value in timeless(plain).items():
            assert neutral[name] == value, name
    assert set(weights[0]) < set(weights[1])
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


@pytest.mark.parametrize("bad_step", [0, 5])
def test_a_loss_that_is_not_finite_ends_the_trial_naming_term_and_step(
    bad_step: int, drawn: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = ProxyAnchor.forward

    def poisoned(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        value = real(self, *args, **kwargs)
        return value * float("nan") if len(calls) - 1 == bad_step else value

    monkeypatch.setattr(ProxyAnchor, "forward", poisoned)
    trainer = Trainer(config(drawn, method={"name": "ddml"}), 0, runtime)
    epoch = bad_step // trainer.schedule.steps_per_epoch + 1
    with pytest.raises(TrialFailure, match=rf"'metric' is nan at step {bad_step} .* epoch {epoch}"):
        list(trainer.train_epochs())


def test_no_such_device(drawn: Path, shared_cache: Path) -> None:
    for name in ("cuda:99", "warp", "mps"):
        with pytest.raises(ConfigError, match="device: "):
            Trainer(config(drawn), 0, Runtime(device=name, cache_dir=shared_cache))
