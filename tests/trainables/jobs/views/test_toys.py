"""Small classes, the plane of two proxies and single gradient steps, against loops in float64."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reports.figures.models import decode_picture
from tests.trainables import core_trials
from trainables.core.runtime import Runtime
from trainables.jobs.job import run_job
from trainables.jobs.request import Job, View
from trainables.jobs.views.embedded_split import EmbeddedSplit, TrialModel
from trainables.words.errors import ConfigError

RATE, DARK, TEMPERATURE = 0.3, 0.25, 0.05


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, drawn: Path, shared_cache: Path) -> TrialModel:
    folder = tmp_path_factory.mktemp("trial")
    config = core_trials.config(
        drawn,
        data={"split": {"imbalance": 3}},
        embedding={"dim": 6},
        loss={"name": "normsoftmax", "temperature": TEMPERATURE},
        training={"epochs": 2, "per_class": 2},
    )
    runtime = Runtime("cpu", 1, shared_cache, folder)
    *_, last = run_job(Job("t", config.model_dump(mode="json"), 0, runtime))
    assert last["event"] == "final"
    return TrialModel(folder, Runtime("cpu", cache_dir=shared_cache))


def asked(model: TrialModel, kind: str, split: str, **options: Any) -> dict[str, Any]:
    actual = model.read_view(View("x", kind, {"split": split, **options}))
    json.dumps(actual, allow_nan=False)
    return actual


def unit(rows: Any) -> np.ndarray:
    array = np.asarray(rows, dtype=float)
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


@pytest.mark.parametrize("name", ["train", "test"])
def test_recall_of_each_class_beside_its_size(model: TrialModel, name: str) -> None:
    actual, split = asked(model, "class_sizes", name), model.embed_split(name)
    z, labels = unit(split.rows), split.subset.labels.tolist()
    names, train = split.subset.classes, model.splits.train
    right, count = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for query in range(len(z)):
        best, nearest = -math.inf, -1
        for other in range(len(z)):
            score = float(sum(a * b for a, b in zip(z[query], z[other], strict=True)))
            if other != query and score > best:
                best, nearest = score, other
        count[names[labels[query]]] += 1
        right[names[labels[query]]] += labels[nearest] == labels[query]
    assert actual["classes"] == list(names) and actual["of_classes"] == len(names)
    assert actual["sizes"] == [count[item] for item in names]
    expected = [right[item] / count[item] for item in names]
    assert actual["recalls"] == pytest.approx(expected, abs=1e-5)
    seen = [train.classes[label] for label in train.labels.tolist()]
    assert actual["trained"] == [seen.count(item) for item in names]
    assert (name == "train") == (actual["trained"] == actual["sizes"])


def test_the_plane_of_the_two_proxies_most_alike(model: TrialModel) -> None:
    actual, split = asked(model, "plane", "test", images=3, level=0.8), model.embed_split("test")
    references = model.network.method.loss.references()
    assert references is not None
    w = unit(references.vectors.detach())
    cosines = w @ w.T
    np.fill_diagonal(cosines, -np.inf)
    one, two = sorted(np.unravel_index(int(cosines.argmax()), cosines.shape))
    train = model.splits.train
    assert actual["classes"][:2] == [train.classes[one], train.classes[two]]
    angle = math.acos(cosines[one, two])
    assert actual["angle"] == pytest.approx(math.degrees(angle), rel=1e-5)
    across = unit(w[two] - cosines[one, two] * w[one])

    def sure(turn: float) -> float:
        v = math.cos(turn) * w[one] + math.sin(turn) * across
        a, b = (math.exp(float(v @ w[at]) / TEMPERATURE) for at in (one, two))
        return a / (a + b)

    turns = [2 * math.pi * at / len(actual["sure"]) for at in range(len(actual["sure"]))]
    assert actual["sure"] == pytest.approx([sure(turn) for turn in turns], abs=2e-5)
    between = [sure(angle * at / 2000) for at in range(2001)]
    unsure = sum(max(p, 1 - p) < 0.8 for p in between) / len(between)
    assert 0 < unsure < 1 and actual["unsure"] == pytest.approx(unsure, abs=1e-3)
    z, labels = unit(split.rows), split.subset.labels.numpy()
    centres = unit([z[labels == at].sum(0) for at in range(len(split.subset.classes))])
    means = [np.mean(z[labels == at], 0) for at in range(len(centres))]
    nearest = int(np.argmax([float(mean @ w[one] + mean @ w[two]) for mean in means]))
    assert actual["classes"][2] == split.subset.classes[nearest]
    plane = np.stack([z @ w[one], z @ across], 1)[labels == nearest]
    for point in actual["points"][2]:
        assert np.abs(plane - point).max(1).min() < 2e-4
    assert [len(points) for points in actual["points"]][2] == 3


def descended(split: EmbeddedSplit, places: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Unit embeddings before and after the step, its gradients by hand."""
    shown, backbone = split.load_pictures(places)
    images = shown.double().numpy()
    for channel, (mean, std) in enumerate(zip(backbone.mean, backbone.std, strict=True)):
        images[0, channel] = ((images[0, channel] * std + mean) * DARK - mean) / std
    with torch.no_grad():
        features = backbone(torch.from_numpy(images).float()).double().numpy()
    method = split.network.method
    state = {name: value.double().numpy().copy() for name, value in method.state_dict().items()}
    w, b, p = (state[name] for name in ("head.weight", "head.bias", "loss.weights"))
    labels = split.subset.labels[places].tolist()
    z = features @ w.T + b
    dw, db, dp = np.zeros_like(w), np.zeros_like(b), np.zeros_like(p)
    for row, label in enumerate(labels):
        length = math.sqrt(float(z[row] @ z[row]))
        cosines = [float(z[row] @ item) / length / math.sqrt(float(item @ item)) for item in p]
        weights = [math.exp((item - max(cosines)) / TEMPERATURE) for item in cosines]
        for at, proxy in enumerate(p):
            slope = (weights[at] / sum(weights) - (at == label)) / TEMPERATURE / len(labels)
            proxy_norm = math.sqrt(float(proxy @ proxy))
            dz = slope * (proxy / proxy_norm - cosines[at] * z[row] / length) / length
            dp[at] += slope * (z[row] / length - cosines[at] * proxy / proxy_norm) / proxy_norm
            dw += np.outer(dz, features[row])
            db += dz
    after = features @ (w - RATE * dw).T + (b - RATE * db)
    return unit(z), unit(after)


def test_a_single_step_is_gradient_descent_on_the_loss(model: TrialModel) -> None:
    split = model.embed_split("train")
    weights_before = {name: value.clone() for name, value in model.network.state_dict().items()}
    actual = asked(model, "single_step", "train", images=8, rate=RATE, dark=DARK)
    places = split.draw_pairs(4, "single_step")
    labels = split.subset.labels[places]
    assert len(places) == 8 and bool((labels[::2] == labels[1::2]).all())
    before, after = descended(split, places)
    moved = [math.dist(a, b) for a, b in zip(before, after, strict=True)]
    assert max(moved) > 1e-3 and actual["moved"] == pytest.approx(moved, rel=1e-3, abs=1e-6)
    pair = [math.dist(item[0], item[1]) for item in (before, after)]
    assert actual["distances"] == pytest.approx(pair, rel=1e-4)
    assert len(actual["before"]) == len(actual["after"]) == len(actual["label"]) == 8
    dark, light = (decode_picture(item).mean() for item in actual["pictures"])
    assert dark < 0.6 * light
    now = model.network.state_dict()
    assert all(torch.equal(value, now[name]) for name, value in weights_before.items())


def test_what_has_no_plane_and_no_finite_step_is_told(
    model: TrialModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="is not finite"):
        asked(model, "single_step", "train", images=8, rate=1e38, dark=DARK)
    monkeypatch.setattr(type(model.network.method.loss), "logit_scale", None)
    with pytest.raises(ConfigError, match="no softmax over the cosines"):
        asked(model, "plane", "test", images=3, level=0.8)
