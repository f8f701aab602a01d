"""Do weights that were found once carry over: relative beside absolute ones.

    python -m tests.benchmarks.carried_weights --out DIR

The weights of each method's terms are searched on typefaces, with NormSoftmax and 256 dimensions,
once as `weights: relative` and once as absolute ones in the ranges of search_procedures.py, each
with 16 trials at the best rates of the plain loss. The best weights are then used unchanged on
emoji, with 64 and 512 dimensions, and with Proxy-Anchor; rates are searched anew for each of these
with the plain loss, by 8 trials. Printed is the gain in validation MAP@R over the plain loss, as
the mean over four seeds that no search has used, with the standard error of the paired differences.
Features are frozen, and training takes eight epochs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import trainables.methods  # noqa: F401 - registers them
from ablate import api
from tests.benchmarks import search_procedures
from tests.benchmarks.search_procedures import build_axis
from trainables.methods.base import METHODS, RATIO

RATES = {"optimizer.lr": build_axis(1e-4, 5e-2)}
SETTINGS: dict[str, dict[str, Any]] = {
    "typefaces, 256": {},
    "emoji": {"data": {"name": "emoji", "image_size": 128}, "training": {"per_class": 2}},
    "64": {"embedding": {"dim": 64}},
    "512": {"embedding": {"dim": 512}},
    "proxy_anchor": {"loss": {"name": "proxy_anchor"}},
}
OTHERS = build_axis(1e-3, 10)  # of an absolute weight that is no axis there: NIR's
TUNED = ("ddml", "detreg", "dvml", "nir")
ROWS = [(method, weights) for method in TUNED for weights in ("relative", "absolute")]


def list_weights(method: str) -> list[str]:
    """Return the options that weigh the terms beside the metric term."""
    terms = METHODS[method].WEIGHTS
    return [name for term, names in terms.items() if term != "metric" for name in names]


def build_trial(setting: str) -> dict[str, Any]:
    trial: dict[str, Any] = {
        "data": {"name": "typefaces", "image_size": 128},
        "backbone": {"name": "tf_efficientnet_lite0", "weights": "packaged", "mode": "frozen"},
        "embedding": {"dim": 256, "init": "pca"},
        "loss": {"name": "normsoftmax"},
        "optimizer": {"name": "adamw", "weight_decay": 1e-4, "multipliers": {"proxies": 30}},
        "schedule": {"name": "one_cycle"},
        "training": {"epochs": 8, "batch_size": 128, "per_class": 4},
    }
    for section, options in SETTINGS[setting].items():
        trial[section] = {**({} if section in ("data", "loss") else trial[section]), **options}
    return trial


def build_search(method: str, weights: str) -> dict[str, Any]:
    ratios, space = METHODS[method].RATIOS, search_procedures.METHODS[method]["space"]
    axes = {
        (path := f"method.{name}"): build_axis(*ratios.get(name, RATIO))
        if weights == "relative"
        else space.get(path, OTHERS)
        for name in list_weights(method)
    }
    return {
        "design": "search",
        "trials": 16,
        "seeds": [100],
        "around": {"best_of": "rates_0"},
        "trial": build_trial("typefaces, 256") | {"method": build_method(method, weights)},
        "space": axes,
    }


def build_method(method: str, weights: str) -> dict[str, Any]:
    return {"name": method, "weights": weights, **search_procedures.METHODS[method]["method"]}


def main(out: Path) -> None:
    """Search and carry over, and print the table."""
    studies: dict[str, Any] = {
        f"rates_{i}": {
            "design": "search",
            "trials": 8,
            "seeds": [100],
            "sampler": "gp",
            "startup": 4,
            "space": RATES,
            "trial": build_trial(setting) | {"method": {"name": "plain"}},
        }
        for i, setting in enumerate(SETTINGS)
    }
    studies |= {f"{method}_{weights}": build_search(method, weights) for method, weights in ROWS}
    options: dict[str, Any] = {"out": out, "track": False, "report": False}
    found = api.run({"name": "carried-searches", "studies": studies}, **options)
    tuned = {}
    for row in ROWS:
        best = found.best("_".join(row)).config["method"]
        values = {name: float(f"{best[name]:.3g}") for name in list_weights(row[0])}
        tuned["_".join(row)] = build_method(*row) | values
        print(*row, values)
    variants: dict[str, Any] = {"plain": {"trial": {"method": {"name": "plain"}}}}
    variants |= {name: {"trial": {"method": method}} for name, method in tuned.items()}
    compared = {
        f"judged_{i}": {
            "design": "compare",
            "seeds": [1, 2, 3, 4],
            "trial": build_trial(setting)
            | {"optimizer": found.best(f"rates_{i}").config["optimizer"]},
            "variants": variants,
        }
        for i, setting in enumerate(SETTINGS)
    }
    frame = api.run({"name": "carried-judged", "studies": compared}, **options).frame
    values = frame.pivot_table(index=["study", "seed"], columns="cell", values="val/map_at_r") * 100
    print("\n| row | " + " | ".join(SETTINGS) + " |\n|:--|" + "--:|" * len(SETTINGS))
    for name in variants:
        cells = []
        for i in range(len(SETTINGS)):
            table = values.loc[f"judged_{i}"]
            gain = table[name] - table["plain"]
            shown = f"{gain.mean():+.2f} ± {gain.sem():.2f}"
            cells.append(f"{table[name].mean():.2f}" if name == "plain" else shown)
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    main(parser.parse_args().out)
