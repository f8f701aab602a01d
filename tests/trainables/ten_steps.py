"""Ten steps of a small trial of every loss and every method, and what else tells whether code gives
the same numbers as before.

    python -m tests.trainables.ten_steps [NAME …]     prints one JSON object

of what each proof gives, with the hash and the REVISION of every component. Two of them, made on
one machine, are equal to the bit where the code computes the same (`renew_digests.py` compares
them). `ten_steps.json` holds a few of the numbers, for other machines.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from tests.trainables import core_trials, golden_values
from tests.trainables.components import loss_options, method_options
from tests.trainables.data import trees
from trainables.core import components
from trainables.core.runtime import EXPORT, Runtime
from trainables.core.trainer import Trainer
from trainables.data.dataset import DATASETS, load_dataset, resolve_data_config
from trainables.evaluation.metrics import ALL, evaluate_embeddings
from trainables.jobs.ensemble import Member, evaluate_ensemble
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

Proof = dict[str, Any]
NUMBERS = Path(__file__).with_name("ten_steps.json")
STEPS = 10
SIZES = {"epochs": 2, "batch_size": 10, "per_class": 2}  # five steps an epoch


@cache
def images(folder: Path) -> Path:
    return core_trials.draw(folder / "images")


def trial(folder: Path, **changes: Any) -> Proof:
    """The losses of its ten steps, how far its parameters moved, what its method observed by epoch,
    and a digest of all else that it tells and ends with."""
    options = core_trials.merged({"training": SIZES, "embedding": {"dim": 8}}, changes)
    config = core_trials.config(images(folder), **options)
    trainer = Trainer(config, 0, Runtime("cpu", 1, folder / "cache"))
    start = [parameter.detach().clone() for parameter in trainer.parameters]
    reports = list(trainer.train_epochs())
    moved = sum(
        float((now.detach() - before).double().square().sum())
        for now, before in zip(trainer.parameters, start, strict=True)
    )
    final = trainer.finish(("val", "test"))
    assert final.steps == STEPS
    reported = [core_trials.timeless(report.metrics) for report in reports]
    observed = [_of(metrics, True) for metrics in reported]
    others = [[_of(metrics, False) for metrics in reported], final.evaluations]
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode())
    for name, weight in sorted(trainer.network.state_dict().items()):
        digest.update(name.encode() + weight.contiguous().numpy().tobytes())
    losses = [metrics["train/loss"] for metrics in reported]
    return {
        "losses": losses,
        "moved": moved**0.5,
        "observed": observed,
        "digest": digest.hexdigest(),
    }


def _of(metrics: dict[str, float], observed: bool) -> dict[str, float]:
    return {name: x for name, x in metrics.items() if name.startswith("observed/") == observed}


def of_component(kind: str, name: str, folder: Path) -> Proof:
    options = {"loss": {"loss": loss_options(name)}, "method": {"method": method_options(name)}}[
        kind
    ]
    golden = {
        f"{method} on {loss}": golden_values.measured(method, loss)
        for item, fold_folder, _, trials in golden_values.components()
        if (item, fold_folder) == (kind, name)
        for method, loss in trials
    }
    try:
        proofs = trial(folder, **options)
    except ValidationError:  # it wants images, for mixing them, say
        proofs = trial(folder, **options, backbone={"mode": "finetune"})
    return {**proofs, "golden": golden}


def finetuned(folder: Path) -> Proof:
    """Through pixels, augmentation, a folded backbone and the start from data."""
    return trial(
        folder,
        backbone={"mode": "finetune"},
        embedding={"dim": 8, "init": "pca"},
        optimizer={"name": "adam"},
        schedule={"name": "cosine", "warmup_epochs": 1},
    )


def evaluation(folder: Path) -> Proof:
    """Every metric by every plain score, and an ensemble of two folds."""
    wave = torch.sin(1.7 * torch.arange(60 * 8)).view(60, 8)
    labels = torch.arange(60) % 6
    logits = wave @ wave[:6].T
    results: Proof = {
        score: evaluate_embeddings(wave, labels, score=score, metrics=ALL, logits=logits)
        for score in ("cosine", "dot", "euclidean")
    }
    members = []
    for fold in range(2):
        split = {"split": {"folds": 2, "fold": fold}}
        config = core_trials.config(images(folder), data=split, training={**SIZES, "epochs": 1})
        fold_folder = folder / f"fold{fold}"
        trainer = Trainer(config, 0, Runtime("cpu", 1, folder / "cache", fold_folder))
        list(trainer.train_epochs())
        trainer.finish(("val",))
        members.append(Member(config, 0, fold_folder / EXPORT))
    runtime = Runtime("cpu", 1, folder / "cache")
    return {**results, "ensemble": evaluate_ensemble(members, runtime)}


def dataset(name: str, folder: Path) -> Proof:
    """Every pixel and label, decoded anew."""
    options: Proof = {"name": name, "image_size": 32}
    if name == "folder":
        options["root"] = str(images(folder))
    elif name in trees.TREES:
        usual, proofs = next(iter(trees.TREES[name].items()))
        options |= {"root": str(proofs(folder / "trees" / usual)), "allow_partial": True}
    results = load_dataset(resolve_data_config(options), folder / "cache")
    digest = hashlib.sha256(results.images.flat.numpy().tobytes())
    for table in (results.labels, results.images.heights, results.images.widths):
        digest.update(table.numpy().tobytes())
    reported: Proof = {"digest": digest.hexdigest(), "classes": list(results.classes)}
    if results.official is not None:
        reported["tested"] = results.official.test.tolist()
    if results.roles is not None:
        reported["roles"] = results.roles.tolist()
    return reported


def trials() -> dict[str, Callable[[Path], Proof]]:
    """Of every loss and method, and one through pixels: name → its proof, made in a folder."""
    results: dict[str, Callable[[Path], Proof]] = {"finetuned": finetuned}
    for kind, registry in (("loss", LOSSES), ("method", METHODS)):
        results |= {f"{kind}.{name}": partial(of_component, kind, name) for name in registry}
    return results


def proofs() -> dict[str, Callable[[Path], Proof]]:
    sets = {f"data.{name}": partial(dataset, name) for name in DATASETS}
    return {**trials(), **sets, "evaluation": evaluation}


def every_component() -> list[str]:
    results = [*components.ENTRY_MODULES]
    for kind, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        results += [f"{kind}.{name}" for name in registry]
    return results


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        values_by_proof = {
            name: proof(Path(folder))
            for name, proof in proofs().items()
            if not names or name in names
        }
    hashes = {
        name: [components.get_revision(name), components.compute_component_digest(name)[0]]
        for name in every_component()
    }
    print(json.dumps({"proofs": values_by_proof, "components": hashes}, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
