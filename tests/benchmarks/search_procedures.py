"""Two ways to tune a method with 24 trials, repeated with other search seeds.

joint: 18 proposals of all axes together, and the three best on two fresh seeds.
stages: 10 proposals of the plain loss's rates; 8 trials around the best of them; and the three best
    on two fresh seeds. The 8 are of the method's weights at these rates, the published ones first,
    or of the plain loss's rates within a factor of 3. The 10 count in both rows.

Compared is the chosen configuration's validation MAP@R over four seeds that no search has used.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ablate import api
from ablate.spec.templates import expand_templates
from ablate.spec.yaml_loader import load_yaml

SPEC = Path(__file__).parents[2] / "search_spaces" / "heads.yaml"
HEADS = expand_templates(load_yaml(SPEC).data, {})[0]
SET_UP = "normsoftmax_typefaces"  # the searches of heads.yaml whose axes are taken
METHODS = ("ddml", "detreg", "dvml", "idml", "nir")
ROWS = ("joint plain", "stages plain", "joint method", "stages method")


def build_spec(method: str, repetitions: int) -> dict[str, Any]:
    """Build a spec with the studies of all repetitions."""
    searched = HEADS["studies"][f"tune_{method}_{SET_UP}"]
    rates, weights = HEADS["studies"][f"rates_{SET_UP}"]["space"], searched["space"]
    trials = {
        "plain": searched["trial"] | {"method": {"name": "plain"}},
        "method": searched["trial"],
    }
    studies: dict[str, Any] = {}
    for i in range(repetitions):

        def search(name: str, row: str, count: int, i: int = i, **more: Any) -> None:
            studies[f"{name}_{row}_{i}"] = {
                "design": "search",
                "trials": count,
                "seeds": [100 + i],
                "trial": trials[row],
                **more,
            }

        search("joint", "plain", 18, space=rates)
        search("joint", "method", 18, space=rates | weights)
        search("rates", "plain", 10, space=rates)
        around = {"best_of": f"rates_plain_{i}"}
        search("stages", "plain", 8, around=around | {"box": 3}, points=[{}])
        search("stages", "method", 8, around=around, space=weights, points=searched["points"])
        for name in ROWS:
            procedure, row = name.split()
            studies[f"best_{procedure}_{row}_{i}"] = {
                "design": "promote",
                "of": f"{procedure}_{row}_{i}",
                "best": 3,
                "seeds": [1000 + i, 2000 + i],
                "trial": trials[row],
            }
        studies[f"judged_{i}"] = {
            "design": "compare",
            "seeds": [1, 2, 3, 4],
            "variants": {
                name: {
                    "around": {"best_of": f"best_{name.replace(' ', '_')}_{i}"},
                    "trial": trials[name.split()[1]],
                }
                for name in ROWS
            },
        }
    return {"name": f"procedures-{method}", "trial": HEADS["trial"], "studies": studies}


def main(method: str, repetitions: int, out: Path) -> None:
    """Run the comparison, and print each repetition and the counts."""
    frame = api.run(build_spec(method, repetitions), out=out, track=False, report=False).frame
    means = frame.groupby(["study", "cell"])["val/map_at_r"].mean() * 100
    chosen = np.array([[means[f"judged_{i}", name] for name in ROWS] for i in range(repetitions)])
    print("repetition  " + "  ".join(ROWS))
    for i, row in enumerate(chosen):
        values = (f"{value:{len(name)}.2f}" for value, name in zip(row, ROWS, strict=True))
        print(f"{i:10}  " + "  ".join(values))
    sds = chosen.std(axis=0, ddof=1)
    for row, (old, new) in {"plain": (0, 1), "method": (2, 3)}.items():
        gain = chosen[:, new] - chosen[:, old]
        print(
            f"{row}: stages better in {(gain > 0).sum()} of {repetitions}, "
            f"not worse by 0.1 or more in {(gain > -0.1).sum()}; "
            f"mean {gain.mean():+.2f}, sd {gain.std(ddof=1):.2f}; "
            f"sd of what is chosen {sds[old]:.2f} and {sds[new]:.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    main(given.method, given.repetitions, given.out)
