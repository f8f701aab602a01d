"""The gradient of each term over the metric term's at the first step: a table over methods, losses,
dimensions and backbones.

    python -m tests.benchmarks.term_ratios [--backbones NAME …] [--weights relative]

Each method has its default options. A batch of 30 classes of typefaces, four images each, passes
through the backbone once, in training mode, and its features go to each method and loss. Terms that
act later only (DVML's reconstruction) are measured as in the last step. Ratios outside 1e-3 to 10
have a mark.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ablate.testing.methods import build_trial
from tests.trainables.components import loss_options
from trainables import streams
from trainables.core.assembly import build_method
from trainables.core.loss_terms import (
    compute_factors,
    compute_ratios,
    measure_batch,
    record_head_outputs,
)
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.cache import locate_default_cache
from trainables.methods.base import METHODS, Method, Progress
from trainables.trial import TrialConfig

LOSSES = ("normsoftmax", "proxy_anchor", "multi_similarity", "n_pair", "triplet_l2sq")
DIMENSIONS = (128, 512)
BACKBONES = {
    "tf_efficientnet_lite0": "packaged",
    "vit_small_patch16_224": "none",
    "resnet50": "none",
}
CLASSES, PER_CLASS = 30, 4
LOWEST, HIGHEST = 1e-3, 10.0
PHASES = (Progress(), Progress(fraction=0.999))  # the first step, and a last one


def list_methods() -> list[str]:
    return [name for name in METHODS if METHODS[name].WEIGHTS]


def measure_ratios(
    method: str,
    loss: str,
    dim: int,
    features: Tensor,
    *,
    classes: int = CLASSES,
    options: dict[str, Any] | None = None,
) -> dict[str, float] | None:
    """Return term → ratio for features[N, F] of classes in turn; None if the pair is refused."""
    section = {"name": method, **(options or {})}
    config = build_trial(section, loss_options(loss), embedding={"dim": dim})
    if isinstance(config, str):
        return None
    built = build_method(config, features=features.shape[1], classes=classes, seed=0)
    labels = (torch.arange(len(features)) // (len(features) // classes))[:, None]
    if built.factors is not None:
        norms = {}
        for progress in reversed(PHASES):
            norms |= measure_batch(built, features, labels, progress, _seed_generators())
        built.factors.copy_(torch.tensor(compute_factors(built, [norms])))
    ratios: dict[str, float] = {}
    for progress in reversed(PHASES):
        ratios |= _measure_phase(built, features, labels, progress)
    return ratios


def _measure_phase(
    method: Method, features: Tensor, labels: Tensor, progress: Progress
) -> dict[str, float]:
    features, generators = features.detach().requires_grad_(), _seed_generators()
    with record_head_outputs(method) as outputs:
        state = method(features, labels, progress, generators["method"])
    terms = method.scale_terms(method.terms(state, labels, progress, generators["loss"]))
    ratios = compute_ratios(terms, [outputs, [features], [*method.loss.parameters()]])
    return {name.removesuffix("_to_metric"): float(ratio) for name, ratio in ratios.items()}


def _seed_generators() -> dict[str, torch.Generator]:
    return {name: streams.create_generator(0, name) for name in ("method", "loss")}


def compute_features(backbone: str) -> Tensor:
    """Return the features [120, F] of a batch of typefaces in training mode."""
    config = TrialConfig(
        data={"image_size": 64},
        backbone={"name": backbone, "weights": BACKBONES[backbone]},
        training={"batch_size": CLASSES * PER_CLASS, "per_class": PER_CLASS},
    )
    trainer = Trainer(config, 0, Runtime("cpu", torch.get_num_threads(), locate_default_cache()))
    trainer.network.enter_phase("main", trainer.parameters)
    positions = trainer.plan_batches(0)[0]
    order = trainer.labels[positions].argsort(stable=True)
    with torch.no_grad():
        images = trainer.inputs.load_training_inputs(
            positions[order], streams.create_generator(0, "augment")
        )
        return trainer.network.features(images)


def write_rows(features: Tensor, options: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a backbone's table in Markdown."""
    columns = [(loss, dim) for loss in LOSSES for dim in DIMENSIONS]
    yield "| method: term | " + " | ".join(f"{loss} {dim}" for loss, dim in columns) + " |"
    yield "|:--|" + "--:|" * len(columns)
    for method in list_methods():
        found = [measure_ratios(method, *column, features, options=options) for column in columns]
        terms = dict.fromkeys(term for ratios in found for term in ratios or ())
        for term in terms:
            cells = []
            for ratios in found:
                ratio = None if ratios is None else ratios.get(term)
                off = ratio is not None and not LOWEST <= ratio <= HIGHEST
                cells.append("–" if ratio is None else f"{ratio:.1e}{' !' if off else ''}")
            yield f"| {method}: {term} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--backbones", nargs="+", default=[*BACKBONES], choices=[*BACKBONES])
    parser.add_argument("--weights", choices=["absolute", "relative"], default="absolute")
    args = parser.parse_args()
    for name in args.backbones:
        print(f"\n{name}, {BACKBONES[name]} weights\n", flush=True)
        for line in write_rows(compute_features(name), {"weights": args.weights}):
            print(line, flush=True)
