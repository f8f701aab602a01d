"""Whole networks, each method at its recipe's first point, untuned: what does each cost?

    python -m tests.benchmarks.first_points --out DIR [--epochs 2] [--seeds 5] [--points 1]

The rows are those of networks.yaml: the plain loss, and the first points that its searches of
methods try; for IDML also its mixtures under the plain metric. Regime and classes are that file's,
but the backbone learns at 0.2 of the head's rate. Printed is validation MAP@R, as mean and standard
deviation over seeds, and its paired difference from the plain loss with the standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ablate import api
from ablate.designs.layers import overlay_mappings
from ablate.spec.yaml_loader import load_yaml
from trainables.words.paths import expand_paths

SPEC = Path(__file__).parents[2] / "search_spaces/comparisons/networks.yaml"
METHODS = ("ddml", "detreg", "dvml", "idml", "nir")
RATE = {"optimizer": {"multipliers": {"backbone": 0.2}}}


def build_spec(epochs: int, seeds: int, points: int) -> dict[str, Any]:
    data = load_yaml(SPEC).data
    changes = {**RATE, "training": {"epochs": epochs}}
    rows: dict[str, Any] = {"plain": {"trial": {"method": {"name": "plain"}}}}
    for method in METHODS:
        search = data["studies"][f"tune_{method}"]
        for number, point in enumerate(search["points"][:points], 1):
            trial = overlay_mappings(search["trial"], expand_paths(point, "points"))
            rows[f"{method} {number}"] = {"trial": trial}
    first = rows["idml 1"]["trial"]
    rows["mixing alone"] = {"trial": overlay_mappings(first, {"method": {"metric": "plain"}})}
    return {
        "name": f"first-points-{epochs}",
        "objective": data["objective"],
        "resources": data["resources"],
        "trial": overlay_mappings(data["trial"], changes),
        "studies": {
            "first": {"design": "compare", "seeds": [*range(1, seeds + 1)], "variants": rows}
        },
    }


def main(out: Path, epochs: int, seeds: int, points: int) -> None:
    """Train and print the table."""
    spec = build_spec(epochs, seeds, points)
    frame = api.run(spec, out=out, track=False, report=False).frame
    values = frame.pivot_table(index="seed", columns="cell", values="val/map_at_r") * 100
    print("| row | MAP@R | sd | − plain |\n|:--|--:|--:|--:|")
    for name in spec["studies"]["first"]["variants"]:
        row, gap = values[name], values[name] - values["plain"]
        print(
            f"| {name} | {row.mean():.2f} | {row.std():.2f} | {gap.mean():+.2f} ± {gap.sem():.2f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--points", type=int, default=1, help="of each search")
    given = parser.parse_args()
    main(given.out, given.epochs, given.seeds, given.points)
