"""What is read of a trained model for figures, against loops in float64."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.trainables import core_trials
from trainables.backbones.backbone import Backbone
from trainables.core.runtime import Runtime
from trainables.jobs.job import run_job
from trainables.jobs.request import Job, TrialViews, View, ViewsRequest
from trainables.jobs.views.embedded_split import VIEWS, EmbeddedSplit, TrialModel
from trainables.jobs.views.single_images import _compute_cam
from trainables.words.errors import ConfigError

CLOSE = 1e-5  # float32 embeddings

MAP = {"classes": 2, "points": 12, "pictures": 3, "perplexity": 30.0, "centred": False}
GALLERY = {"queries": 3, "failures": 3, "nearest": 4}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, drawn: Path, shared_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("trial")
    method = {"name": "idml", "uncertainty_dim": 8, "mixing": "feature_mixup"}
    config, runtime = (
        core_trials.config(drawn, method=method),
        Runtime("cpu", 1, shared_cache, folder),
    )
    *_, last = run_job(Job("t", config.model_dump(mode="json"), 0, runtime))
    assert last["event"] == "final"
    return folder


@pytest.fixture(scope="module")
def model(trial: Path, shared_cache: Path) -> TrialModel:
    return TrialModel(trial, Runtime("cpu", cache_dir=shared_cache))


@pytest.fixture(scope="module")
def split(model: TrialModel) -> EmbeddedSplit:
    return model.embed_split("test")


def unit(split: EmbeddedSplit) -> np.ndarray:
    rows = split.rows.double().numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def asked(model: TrialModel, kind: str, **options: Any) -> dict[str, Any]:
    actual = model.read_view(View("x", kind, {"split": "test", **options}))
    json.dumps(actual, allow_nan=False)
    return actual


def test_a_gallery_shows_the_nearest_and_the_hardest_failures(
    model: TrialModel, split: EmbeddedSplit
) -> None:
    actual = asked(model, "gallery", **GALLERY)
    z, labels = unit(split), split.subset.labels.numpy()
    similarity = z @ z.T
    np.fill_diagonal(similarity, -np.inf)
    of_picture = {split.encode_thumbnail(position): position for position in range(len(z))}
    assert len(of_picture) == len(z), "the drawn images must differ"
    shown = []
    for row in actual["rows"]:
        query = of_picture[row["query"]]
        shown.append(query)
        order = np.argsort(-similarity[query], kind="stable")
        near = [of_picture[item["picture"]] for item in row["near"]]
        assert similarity[query][near] == pytest.approx(similarity[query][order[:4]], abs=CLOSE)
        assert query not in near
        for position, item in zip(near, row["near"], strict=True):
            assert item["hit"] == (labels[position] == labels[query])
            assert item["class"] == split.subset.classes[labels[position]]
            assert item["score"] == pytest.approx(similarity[query, position], abs=CLOSE)
        assert row["rank"] == 1 + np.flatnonzero(labels[order] == labels[query])[0]
    same = labels[:, None] == labels[None]
    np.fill_diagonal(same, val=False)
    right = np.where(same, similarity, -np.inf).max(1)
    wrong = np.where(same | np.eye(len(z), dtype=bool), -np.inf, similarity).max(1)
    assert actual["failing"] == (wrong > right).sum()
    drawn = [query for query, row in zip(shown, actual["rows"], strict=True) if not row["failed"]]
    failed = [query for query, row in zip(shown, actual["rows"], strict=True) if row["failed"]]
    assert len({labels[query] for query in drawn}) == min(3, len(split.subset.classes))
    hardest = sorted((wrong - right)[[q for q in range(len(z)) if q not in drawn]])[::-1]
    expected = [margin for margin in hardest if margin > 0][:3]
    assert (wrong - right)[failed] == pytest.approx(expected, abs=CLOSE)


def test_spectrum_and_distances(model: TrialModel, split: EmbeddedSplit) -> None:
    z, labels = unit(split), split.subset.labels.numpy()
    actual = asked(model, "spectrum")
    singular = np.linalg.svd(z, compute_uv=False)
    assert actual["shares"] == pytest.approx(list(singular / singular.sum()), abs=CLOSE)
    far = asked(model, "distances", images=10_000)
    apart = np.sqrt(((z[:, None] - z[None]) ** 2).sum(-1))
    upper = np.triu_indices(len(z), 1)
    same = (labels[:, None] == labels[None])[upper]
    for kind, mean, chosen in zip(("intra", "inter"), far["means"], (same, ~same), strict=True):
        values = apart[upper][chosen]
        assert mean == pytest.approx(values.mean(), abs=1e-4)
        shares = np.histogram(values, far["edges"])[0] / len(values)
        assert np.abs(np.cumsum(far[kind]) - np.cumsum(shares)).max() < 0.01
        assert sum(far[kind]) == pytest.approx(1)
    low = np.minimum(far["intra"], far["inter"]).sum()
    assert far["overlap"] == pytest.approx(low)


def test_a_centred_map_is_of_what_differs_within_classes(
    model: TrialModel, split: EmbeddedSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[np.ndarray] = []

    def keep(_: object, rows: np.ndarray) -> np.ndarray:
        options.append(rows)
        return rows[:, :2]

    monkeypatch.setattr("sklearn.manifold.TSNE.fit_transform", keep)
    every = {"classes": 9, "points": 1000, "pictures": 0, "perplexity": 5.0}
    actual = asked(model, "embedding_map", centred=True, **every)
    label = np.asarray(actual["label"])
    for at in range(len(actual["classes"])):
        assert np.abs(options[0][label == at].mean(0)).max() < 1e-7
    z = unit(split)
    within = sum(
        ((z[rows] - z[rows].mean(0)) ** 2).sum()
        for rows in (split.subset.labels.numpy() == c for c in range(len(split.subset.classes)))
    )
    assert (options[0] ** 2).sum() == pytest.approx(within, rel=1e-4)


def test_affinity_is_of_the_proxies(model: TrialModel) -> None:
    actual = asked(model, "affinity", split="train", classes=200)
    references = model.network.method.loss.references()
    assert references is not None and actual["of"] == "proxies"
    w = references.vectors.detach().double().numpy()
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    names = model.splits.train.classes
    rows = [names.index(name) for name in actual["classes"]]
    assert sorted(rows) == list(range(len(names)))
    assert np.asarray(actual["cosines"]) == pytest.approx((w @ w.T)[rows][:, rows], abs=1e-4)


class Maps(torch.nn.Module):
    """A backbone's shell. kind: how its last features lie."""

    num_features = 3
    num_prefix_tokens = 2

    def lie(self, maps: torch.Tensor, kind: str) -> torch.Tensor:
        if kind == "last":
            return maps.permute(0, 2, 3, 1)
        if kind == "tokens":
            tokens = maps.flatten(2).mT
            return torch.cat([torch.full_like(tokens[:, :2], 9.0), tokens], 1)
        return maps


@pytest.mark.parametrize("kind", ["map", "last", "tokens"])
def test_grad_cam_is_the_paper_s(kind: str) -> None:
    """By loops; of a term whose slopes are known."""
    g = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 3, 4, 4, generator=g, dtype=torch.float64)
    slopes = torch.randn(2, 3, 4, 4, generator=g, dtype=torch.float64)
    model = Maps()
    backbone = SimpleNamespace(model=model)
    lying, slanted = model.lie(maps.clone(), kind).requires_grad_(), model.lie(slopes, kind)
    actual = _compute_cam((slanted * lying).sum(), lying, cast(Backbone, backbone))
    for image in range(2):
        cam = np.zeros((4, 4))
        for y, x in np.ndindex(4, 4):
            for channel in range(3):
                weight = slopes[image, channel].mean()
                cam[y, x] -= float(weight * maps[image, channel, y, x])
        cam = np.maximum(cam, 0)
        assert actual[image].numpy() == pytest.approx(cam / cam.max(), abs=5e-4)
    flat = _compute_cam((0 * lying).sum(), lying, cast(Backbone, backbone))
    assert not flat.any()


def test_grad_cam_has_a_map_a_term(model: TrialModel) -> None:
    actual = asked(model, "grad_cam", split="train", images=2, terms=["metric"])
    assert actual["terms"] == ["metric"] and len(actual["rows"]) == 2
    assert np.asarray(actual["rows"][0]["maps"]["metric"]).ndim == 2
    with pytest.raises(ConfigError, match="'metrik' is none of metric"):
        asked(model, "grad_cam", split="train", images=2, terms=["metrik"])


def test_uncertainty_is_ranked(model: TrialModel) -> None:
    actual = asked(model, "uncertainty", images=20, ends=3)
    values = next(iter(actual["values"].values()))
    assert len(values) == 20 and {*actual["values"]} == {*model.network.method.MEASURES}
    ends = [item["value"] for item in actual["low"]], [item["value"] for item in actual["high"]]
    assert ends[0] == pytest.approx(sorted(values)[:3], rel=1e-4)
    assert ends[1] == pytest.approx(sorted(values)[::-1][:3], rel=1e-4)


@pytest.mark.slow
def test_the_process_reads_what_it_can_and_tells_the_rest(
    trial: Path, shared_cache: Path, tmp_path: Path
) -> None:
    good = View("spectrum-1", "spectrum", {"split": "val"})
    bad = View("spectrum-2", "spectrum", {"split": "nothing"})
    (tmp_path / "empty").mkdir()
    trials = (TrialViews(trial, (good, bad)), TrialViews(tmp_path / "empty", (good,)))
    request = ViewsRequest(trials, Runtime("cpu", 1, shared_cache))
    done = subprocess.run(
        [sys.executable, "-m", "trainables.jobs.views"],
        input=json.dumps(request.to_dict()),
        capture_output=True,
        text=True,
        check=False,
    )
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert done.returncode == 1, done.stderr
    assert [(Path(item["folder"]), item["name"]) for item in events] == [
        (trial, bad.name),
        (tmp_path / "empty", good.name),
    ]
    assert "nothing" in events[0]["reason"] and "config.json" in events[1]["reason"]
    assert json.loads(good.locate_file(trial).read_text())["kind"] == "spectrum"
    assert not bad.locate_file(trial).exists()


def test_what_cannot_be_read_is_told(model: TrialModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs 4"):
        asked(model, "embedding_map", **{**MAP, "classes": 1, "points": 2})
    monkeypatch.setattr(type(model.network.method), "MEASURES", ())
    with pytest.raises(ConfigError, match="The method has no uncertainty"):
        asked(model, "uncertainty", images=4, ends=1)


def test_every_kind_is_read_by_a_figure() -> None:
    from reports.figures.models import ModelOptions
    from reports.kinds import FIGURES, find_figure_options

    views: dict[str, Callable[..., Any]] = {name: VIEWS[name] for name in VIEWS}
    of_models = {kind for kind in FIGURES if issubclass(find_figure_options(kind), ModelOptions)}
    assert of_models == {*views}
    for kind in of_models:
        options = find_figure_options(kind)().model_dump()
        wanted = {*views[kind].__annotations__} - {"return", "split"}
        assert {*options} - {"cells", "split"} == wanted, kind
