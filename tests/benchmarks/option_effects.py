"""What each hyperparameter that a paper names does to training: one factor at a time, on heads.

    python -m tests.benchmarks.option_effects --out DIR [METHOD …]

Features are frozen; training takes eight epochs on typefaces with Proxy-Anchor, two seeds. Printed
are, for each level, validation MAP@R with the standard deviation over seeds, and the last epoch's
mean of the logged term on which the option acts; nan if the level turns it off. A paper's equation
says in which direction that term moves.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from ablate import api

SEEDS = (1, 2)
TRIAL: dict[str, Any] = {
    "data": {"name": "typefaces", "image_size": 128},
    "backbone": {"name": "tf_efficientnet_lite0", "weights": "packaged", "mode": "frozen"},
    "embedding": {"dim": 128, "init": "pca"},
    "loss": {"name": "proxy_anchor"},
    "optimizer": {
        "name": "adamw",
        "lr": 5e-3,
        "weight_decay": 1e-4,
        "multipliers": {"proxies": 30},
    },
    "schedule": {"name": "one_cycle"},
    "training": {"epochs": 8, "batch_size": 128, "per_class": 4},
}
SLOW = {"multipliers": {"auxiliary": 0.01}}


class Option(NamedTuple):
    """An option, its levels, and the logged term on which it acts."""

    path: str
    levels: tuple[Any, ...]
    term: str


class Method(NamedTuple):
    """A method as its recipe has it, and its options."""

    trial: dict[str, Any]
    options: tuple[Option, ...]


METHODS = {
    "ddml": Method(
        {"method": {"name": "ddml", "specific_input": "unit", "logit_scale": "tied"}},
        (
            Option("method.alpha", (0, 0.1, 1, 10), "agnostic"),
            Option("method.beta", (0, 0.1, 1, 10), "specific"),
            Option("method.gamma", (0, 1e-3, 0.1, 1), "split"),
        ),
    ),
    "detreg": Method(
        {"method": {"name": "detreg", "input": "sqrt_d", "flow": {"width": 128, "depth": 4}}},
        (
            Option("method.lambda1", (0, 0.05, 0.5, 5), "r1"),
            Option("method.lambda2", (0, 0.05, 0.5, 5), "r2"),
            Option("method.epsilon", (0, 0.4, 0.8), "r1"),
            Option("method.flow.kind", ("realnvp", "nice", "glow"), "r1"),
            Option("method.flow.depth", (2, 4, 8), "r1"),
        ),
    ),
    "idml": Method(
        {"method": {"name": "idml", "mixing": "none", "uncertainty_start": 0.1}, "optimizer": SLOW},
        (
            Option("method.tau", (0.5, 5, 50), "metric"),
            Option("method.gamma", (0, 1, 4), "metric"),
            Option("method.uncertainty_dim", (32, 128, 512), "metric"),
            Option("embedding.dim", (64, 128, 512), "metric"),
            Option("method.mixing", ("none", "feature_mixup"), "uncertainty_original"),
        ),
    ),
    "dvml": Method(
        {"method": {"name": "dvml", "weights": "relative", "samples": 5}},
        (
            Option("method.lambda1_phase2", (0.01, 0.1, 1), "kl"),
            Option("method.lambda2_phase2", (0.01, 0.1, 1), "reconstruction"),
            Option("method.lambda3_phase2", (0.01, 0.1, 1), "generated"),
            Option("method.lambda4_phase2", (0.1, 0.8, 1), "metric"),
            Option("method.samples", (1, 5, 20), "generated"),
            Option("method.phase1", (0.1, 0.5, 0.9), "reconstruction"),
        ),
    ),
    "nir": Method(
        {"method": {"name": "nir", "omega": 0.1, "gradient_limit": 0.1}, "optimizer": SLOW},
        (
            Option("method.omega", (0.01, 0.1, 1), "nir_to_metric"),
            Option("method.flow.depth", (2, 8, 12), "nll"),
            Option("method.flow.width", (64, 128, 512), "nll"),
            Option("method.flow.condition", ("dense", "start", "mid", "end"), "nll"),
            Option("method.f", ("exp", "softplus"), "nir"),
            Option("method.negative_pairs", ("none", "difference", "separate"), "nll"),
            Option("method.synthetic", ("none", "generate", "match", "both"), "nll"),
        ),
    ),
}


def build_spec(method: str) -> dict[str, Any]:
    """Build a study for each option, with a cell for each of its levels."""
    return {
        "name": f"options-{method}",
        "trial": TRIAL,
        "studies": {
            option.path.replace(".", "_"): {
                "design": "grid",
                "seeds": [*SEEDS],
                "trial": METHODS[method].trial,
                "grid": {option.path: list(option.levels)},
            }
            for option in METHODS[method].options
        },
    }


def read_last_value(trials: Path, trial_id: str, term: str) -> float:
    """Return the last epoch's mean of a term or of an observed quantity."""
    history = json.loads((trials / trial_id / "final.json").read_bytes())["history"]
    metrics = history[-1]["metrics"]
    return float(metrics.get(f"term/{term}/value", metrics.get(f"observed/{term}", math.nan)))


def main(out: Path, methods: list[str]) -> None:
    """Train and print a table for each method."""
    for method in methods:
        frame = api.run(build_spec(method), out=out, track=False, report=False).frame
        print(f"\n### {method}\n\n| option | level | MAP@R | term | its last value |")
        print("|:--|--:|--:|:--|--:|")
        for option in METHODS[method].options:
            study = frame[frame["study"] == option.path.replace(".", "_")]
            for cell, rows in study.groupby("cell", sort=False):
                scores = [100 * value for value in rows["val/map_at_r"]]
                values = [read_last_value(out / "trials", i, option.term) for i in rows["trial_id"]]
                level = str(cell).rpartition("=")[2]
                score = f"{fmean(scores):.2f} ± {stdev(scores):.2f}"
                print(
                    f"| {option.path} | {level} | {score} | {option.term} | {fmean(values):.4g} |"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("methods", nargs="*", help=", ".join(METHODS))
    arguments = parser.parse_args()
    main(arguments.out, arguments.methods or list(METHODS))
