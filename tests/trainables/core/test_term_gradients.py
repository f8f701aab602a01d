"""Ratios of the terms' gradients: against difference quotients; without effect on training; and the
weights that are ratios."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.benchmarks import term_ratios
from tests.oracles import gradients as oracle
from tests.trainables.components import method_options
from tests.trainables.core_trials import config, timeless
from tests.trainables.methods import cases
from trainables import load, streams
from trainables.core import loss_terms
from trainables.core import trainer as trainer_module
from trainables.core.identity import dump_identity
from trainables.core.loss_terms import (
    Norms,
    compute_factors,
    compute_ratios,
    record_head_outputs,
)
from trainables.core.runtime import EXPORT, EpochReport, Runtime
from trainables.core.trainer import Trainer
from trainables.methods.base import METHODS, Progress, Term
from trainables.words.errors import ConfigError

LATE = Progress(fraction=0.9)  # DVML's second phase, in which nothing is detached
# terms that act on something else than the head's output
FEATURES = {"dvml": ["kl"]}
PROXIES = {"anti_collapse": ["anti_collapse"]}
NOWHERE = {"hier": ["ancestors"]}  # it trains the ancestors alone
WEIGHTS: dict[str, dict[str, Any]] = {
    "hier": {"ancestors": 16, "draws": 8, "neighbours": 4},
    "nir": {"omega": 0.3, "weight": 0.7},
}
WEIGHTED = [name for name in METHODS if METHODS[name].WEIGHTS]


class Fixed(nn.Module):
    """A head that returns one tensor."""

    def __init__(self, z: Tensor) -> None:
        super().__init__()
        self.z, self.out_features = z, z.shape[-1]

    def forward(self, features: Tensor) -> Tensor:
        return self.z


def build(name: str) -> Any:
    return cases.built(name, "normsoftmax", **WEIGHTS.get(name, {}))


def batch_of(name: str) -> tuple[Tensor, Tensor]:
    """HIER has triplets in a batch of this size only."""
    size = 24 if name == "hier" else cases.B
    labels = torch.tensor(cases.LABELS * 4)[:size]
    return cases.x(size, 3), labels[:, None]


def measure(method: Any, features: Tensor, labels: Tensor) -> dict[str, float]:
    with record_head_outputs(method) as outputs:
        _, terms = cases.step(method, LATE, features.requires_grad_(), labels)
    points = [outputs, [features], list(method.loss.parameters())]
    return {name: float(ratio) for name, ratio in compute_ratios(terms, points).items()}


def weighted_values(method: Any, features: Tensor, labels: Tensor) -> dict[str, float]:
    _, terms = cases.step(method, LATE, features, labels)
    return {name: float(weight * value) for name, (value, weight) in terms.items()}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "hier"])
def test_ratios_are_those_of_difference_quotients(name: str) -> None:
    method, (features, labels) = build(name), batch_of(name)
    found = measure(method, features, labels)
    features = features.detach()
    proxies = [p.detach() for p in method.loss.parameters()]
    z, head, expected = method.head(features).detach().clone(), method.head, dict[str, float]()
    elsewhere = {"features": FEATURES.get(name, []), "proxies": PROXIES.get(name, [])}
    for point, tensors in (("z", [z]), ("features", [features]), ("proxies", proxies)):
        terms = elsewhere.get(point, [])
        if point != "z" and not terms:
            continue
        method.head = Fixed(z) if point == "z" else head
        norms = oracle.gradient_norms(lambda: weighted_values(method, features, labels), tensors)
        if point == "z":
            terms = [*norms.keys() - {"metric", *elsewhere["features"], *elsewhere["proxies"]}]
        expected |= {f"{term}_to_metric": norms[term] / norms["metric"] for term in terms}
    assert found == pytest.approx(expected, rel=1e-6)
    assert all(ratio > 0 for ratio in found.values())
    assert bool(found) == (name not in ("plain", "idml"))


def test_ratios_of_hiers_choices_of_ancestors() -> None:
    """Its gradient is that of a softmax, which no difference shows: two backward passes do."""
    method, (features, labels) = build("hier"), batch_of("hier")
    found = measure(method, features, labels)
    norms = {}
    for name in ("metric", "images"):
        z = method.head(features).detach().requires_grad_()
        again = build("hier")
        again.head = Fixed(z)
        _, terms = cases.step(again, LATE, features, labels)
        (terms[name].weight * terms[name].value).backward()
        assert z.grad is not None
        norms[name] = sum(float(entry) ** 2 for entry in z.grad.flatten()) ** 0.5
    assert found == {"images_to_metric": pytest.approx(norms["images"] / norms["metric"], rel=1e-9)}
    assert found["images_to_metric"] > 0


def test_a_term_of_weight_0_or_of_a_decoder_alone_has_no_ratio() -> None:
    method, (features, labels) = build("dvml"), batch_of("dvml")
    with record_head_outputs(method) as outputs:
        _, terms = cases.step(method, Progress(), features.requires_grad_(), labels)
    points = [outputs, [features]]
    assert compute_ratios(terms, points).keys() == {"kl_to_metric", "generated_to_metric"}
    terms["kl"] = Term(terms["kl"].value, 0.0)
    assert compute_ratios(terms, points).keys() == {"generated_to_metric"}
    features = features.detach()  # cached ones: the term meets the metric nowhere
    with record_head_outputs(method) as outputs:
        _, terms = cases.step(method, Progress(), features, labels)
    assert compute_ratios(terms, [outputs, [features]]).keys() == {"generated_to_metric"}


# ------------------------------------------------------------------------------------- in training


def train(
    drawn: Path, cache: Path, folder: Path | None = None, **changes: Any
) -> tuple[Trainer, list[EpochReport]]:
    trainer = Trainer(config(drawn, **changes), 0, Runtime("cpu", 1, cache, folder))
    return trainer, list(trainer.train_epochs())


@pytest.mark.parametrize("weights", [None, "relative"])
@pytest.mark.parametrize("name", ["ddml", "nir"])
def test_ten_steps_are_the_same_numbers_if_terms_are_measured(
    name: str, weights: str | None, drawn: Path, shared_cache: Path
) -> None:
    options = method_options(name) | {"weights": weights}
    runs = [
        train(
            drawn,
            shared_cache,
            method=options,
            training={"epochs": 2, "batch_size": 10, "per_class": 2, "measure_terms": measured},
        )
        for measured in (None, False)
    ]
    (measured, with_ratios), (unmeasured, without) = runs
    assert measured.steps == 10
    for key, tensor in measured.network.state_dict().items():
        assert torch.equal(tensor, unmeasured.network.state_dict()[key]), key
    for more, fewer in zip(with_ratios, without, strict=True):
        rest = timeless(fewer.metrics)
        assert rest.items() <= more.metrics.items()
        extra = more.metrics.keys() - fewer.metrics.keys()
        assert all("_to_metric" in key for key in extra), extra


@pytest.mark.slow
@pytest.mark.parametrize("name", list(METHODS))
def test_whole_networks_take_the_same_steps_if_terms_are_measured(
    name: str, drawn: Path, shared_cache: Path
) -> None:
    """With norms in training, dropout's stream and parts of batches."""
    for changes in ({"backbone": {"freeze_bn": False}}, {"training": {"micro_batch": 4}}):
        ends = []
        for measured in (None, False):
            training = {"epochs": 2, "measure_terms": measured} | changes.get("training", {})
            backbone = {"mode": "finetune"} | changes.get("backbone", {})
            trainer, reports = train(
                drawn,
                shared_cache,
                method=method_options(name),
                training=training,
                backbone=backbone,
            )
            losses = [report.metrics["train/loss"] for report in reports]
            ends.append((losses, trainer.network.state_dict()))
        (losses, state), (other_losses, other) = ends
        assert losses == other_losses
        assert all(torch.equal(tensor, other[key]) for key, tensor in state.items())


def test_the_steps_that_are_measured(
    drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_terms, "INTERVAL", 7)
    seen: list[int] = []
    real = Trainer.step

    def watched(self: Trainer, positions: Tensor, phase: str) -> None:
        trace = self.trace
        assert trace is not None
        before = len(trace.get_state()["observed"].get("split_to_metric", ()))
        real(self, positions, phase)
        if len(trace.get_state()["observed"].get("split_to_metric", ())) > before:
            seen.append(self.steps - 1)

    monkeypatch.setattr(Trainer, "step", watched)
    trainer, _ = train(drawn, shared_cache, method={"name": "ddml"}, training={"epochs": 6})
    assert seen == sorted({0, 1, 2, *range(0, trainer.steps, 7)}) and trainer.steps > 14


def test_parts_of_a_batch_give_the_ratios_of_the_whole(drawn: Path, shared_cache: Path) -> None:
    results = []
    for most in (None, 5):
        training = {"epochs": 1, "micro_batch": most, "batch_size": 12}
        options = {"backbone": {"mode": "finetune"}, "method": {"name": "dvml", "phase1": 0}}
        _, reports = train(drawn, shared_cache, training=training, **options)
        first = {k: v for k, v in reports[0].metrics.items() if k.endswith("_to_metric/first")}
        assert len(first) == 3, "kl acts on the features, which are a leaf where they are divided"
        results.append(first)
    assert results[0] == pytest.approx(results[1], rel=1e-3)


# --------------------------------------------------------------------------------- relative weights


@pytest.mark.parametrize("name", WEIGHTED)
def test_relative_weights_are_the_ratios_at_the_start(
    name: str, drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first step, on the one batch that the factors are then measured on."""
    monkeypatch.setattr(trainer_module, "CALIBRATION_BATCHES", 1)
    weights = {option: 0.1 for options in METHODS[name].WEIGHTS.values() for option in options}
    options = {"hier": {"ancestors": 64}, "dvml": {"phase1": 0}}.get(name, {})
    trainer, reports = train(
        drawn,
        shared_cache,
        tmp_path,
        method={"name": name, **options, **weights, "weights": "relative"},
        backbone={"mode": "finetune" if name == "dvml" else "frozen"},
        training={"epochs": 1, "batch_size": 24, "per_class": 4},
    )
    metrics, method = reports[0].metrics, trainer.network.method
    for term in method.scaled_terms:
        if term not in NOWHERE.get(name, []):
            ratio = metrics[f"observed/{term}_to_metric/first"]
            assert ratio == pytest.approx(0.1, rel=1e-4), term
    assert method.factors is not None and (method.factors != 1).all()
    for term, factor in zip(method.scaled_terms, method.factors.tolist(), strict=True):
        weight = -0.1 if term == "r2" else 0.1
        assert metrics[f"term/{term}/weight"] == pytest.approx(weight * factor, rel=1e-6)
    trainer.finish()
    stored = load(tmp_path / EXPORT).network.method.factors
    assert stored is not None and torch.equal(stored, method.factors)


def test_a_factor_is_the_ratio_of_mean_norms() -> None:
    method = build("hier")
    norms = [
        {"images": Norms(torch.tensor(term), torch.tensor(metric))}
        for term, metric in ((2.0, 1.0), (4.0, 5.0))
    ]
    assert compute_factors(method, [*norms, {}]) == [1.0, 1.0], "ancestors share the weight"
    norms.append({"images": Norms(torch.tensor(0.0), torch.tensor(6.0))})
    assert compute_factors(method, norms) == [2.0, 2.0]


@pytest.mark.parametrize(("term", "metric"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0)])
def test_gradients_that_give_no_factor_are_one_sentence(term: float, metric: float) -> None:
    norms = {"images": Norms(torch.tensor(term), torch.tensor(metric))}
    with pytest.raises(ConfigError, match=r"method.weights: .* the term images .* absolute"):
        compute_factors(build("hier"), [norms])


def test_a_term_that_acts_nowhere_keeps_its_weight(
    drawn: Path, shared_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method = {"name": "dvml", "spread": "detached", "weights": "relative"}
    trainer, _ = train(drawn, shared_cache, method=method, training={"epochs": 1})
    assert trainer.network.method.factors is not None
    kl, reconstruction, generated = trainer.network.method.factors.tolist()
    assert kl == 1 and reconstruction != 1 and generated != 1
    assert "The term 'kl' acts neither on the embeddings nor on the features" in caplog.text


def test_measuring_weights_leaves_everything_else_as_it_was(
    drawn: Path, shared_cache: Path
) -> None:
    """With a relative weight of 0, training is that of an absolute one, running norms included."""
    off = {"name": "ddml", "alpha": 0, "beta": 0, "gamma": 0}
    ends = []
    for weights in (None, "relative"):
        trainer, reports = train(
            drawn,
            shared_cache,
            method={**off, "weights": weights},
            backbone={"mode": "finetune", "freeze_bn": False},
            training={"epochs": 1},
        )
        ends.append((trainer.network.state_dict(), timeless(reports[0].metrics)))
    (absolute, expected), (relative, actual) = ends
    assert relative.pop("method.factors").shape == (3,)
    assert actual == expected
    assert all(torch.equal(tensor, relative[name]) for name, tensor in absolute.items())


def test_absolute_weights_are_the_default_and_keep_the_id() -> None:
    for name in WEIGHTED:
        default, absolute = (
            METHODS[name].Config.model_validate({"name": name, **options})
            for options in ({}, {"weights": "absolute"})
        )
        assert default == absolute
        assert "weights" not in dump_identity(default)
        relative = METHODS[name].Config.model_validate({"name": name, "weights": "relative"})
        assert dump_identity(relative)["weights"] == "relative"


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_relative_weight_is_the_ratio_with_every_loss_and_dimension(name: str) -> None:
    x = torch.randn(40, 32, generator=streams.create_generator(0, "x"))
    weights = {option: 0.1 for options in METHODS[name].WEIGHTS.values() for option in options}
    options = {
        "hier": {"ancestors": 16, "draws": 5},
        "dvml": {"samples": 2},
        "detreg": {"flow": {"depth": 2}},
    }
    section = {**options.get(name, {}), **weights, "weights": "relative"}
    compared = 0
    for loss, dim in itertools.product(term_ratios.LOSSES, (8, 24)):
        ratios = term_ratios.measure_ratios(name, loss, dim, x, classes=10, options=section)
        for term, ratio in (ratios or {}).items():
            if term in METHODS[name].WEIGHTS:
                assert ratio == pytest.approx(0.1, rel=1e-3), (term, loss, dim)
                compared += 1
    assert compared >= 4
