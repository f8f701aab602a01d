"""Whether four trainings with `blocks: classes` find the winner that 5 splits × 4 seeds find.

    python -m tests.benchmarks.class_blocks --out FOLDER [--repetitions 20]

Two losses train heads on frozen features of typefaces: in each repetition with four seeds on the
whole split, judged over its 100 test classes and these seeds, and with four other seeds on each of
five splits, judged over the splits. Printed are each repetition's intervals, how often both call
the same winner, and how often either calls one when the labels of the two rows are exchanged at
random: for each test class, or for each split. 960 trials of about 2.5 seconds.

Then three pilots are drawn from these trials again and again: seeds of the whole split, the same
with values by class, and seeds on five splits. `--decide` proposes a design for the half-width that
8 seeds, or 8 on each split, have in 95 % of draws. Other trials, as many as it proposes, are drawn,
and how often their interval is as short is printed.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ablate import api
from ablate.engine.design_proposals import SHARES, choose_proposal, propose_designs
from ablate.ledger.records import Records
from ablate.sweep.estimates import Pilot
from reports.kinds import DEFAULT_RULE
from reports.stats.comparison_rule import Judgement, Sample, judge, load_rule
from reports.stats.planning import Family, estimate_components
from reports.stats.wider_claims import OverClasses, estimate_class_variances
from tests.benchmarks.search_procedures import HEADS

METRIC, SEEDS, SPLITS, EXCHANGES = "map_at_r", 4, 5, 200
PILOTS = 200
SMALLEST = 0.003
ROWS: dict[str, dict[str, Any]] = {
    "normsoftmax": {"loss": {"name": "normsoftmax", "temperature": 0.17}},
    "proxy_anchor": {"loss": {"name": "proxy_anchor"}},
}
Key = tuple[str, int | None]  # row, and number of the split


def build_spec(repetitions: int) -> dict[str, Any]:
    """Build a spec of two comparisons of the rows: on the whole split, and on five parts of it."""
    study = {
        "design": "compare",
        "seeds": list(range(100, 100 + SEEDS * repetitions)),
        "variants": {row: {"trial": trial} for row, trial in ROWS.items()},
        "evaluate": ["val", "test"],
    }
    trial = HEADS["trial"] | {"data": {"name": "typefaces", "image_size": 128}}
    trial["optimizer"] = trial["optimizer"] | {"lr": 0.0095}
    studies = {"whole": study, "parts": study | {"splits": SPLITS}}
    return {"name": "class-blocks", "trial": trial, "studies": studies}


def load_runs(ledger: Path, sweep_id: str) -> dict[str, dict[Key, list[str]]]:
    """Return study → (row, split) → its trials in the order of their seeds."""
    runs: dict[str, dict[Key, list[str]]] = {}
    with Records(ledger) as records:
        for cell in sorted(records.list_cells(sweep_id), key=lambda cell: cell["seed"]):
            key = cell["cell"], cell["fold"]
            runs.setdefault(cell["study"], {}).setdefault(key, []).append(cell["trial_id"])
    return runs


def judge_over_classes(differences: np.ndarray, queries: np.ndarray) -> Judgement:
    """Judge [C, S] differences of the second row to the first."""
    means = np.average(differences, axis=0, weights=queries)
    sample = Sample(dict.fromkeys(range(len(means)), 0.0), {"row": dict(enumerate(means))})
    rule = OverClasses({"row": differences}, queries)
    return judge(rule, sample, smallest=SMALLEST)["row"]


def judge_over_splits(differences: Sequence[float]) -> Judgement:
    """Judge the difference of the second row to the first on each split."""
    zeros = dict.fromkeys(range(len(differences)), 0.0)
    sample = Sample(zeros, {"row": dict(enumerate(map(float, differences)))})
    return judge(load_rule("dunnett_and_t"), sample, smallest=SMALLEST)["row"]


def is_decided(judgement: Judgement) -> bool:
    return judgement.call in ("better", "worse")


def describe(judgement: Judgement) -> str:
    gap = judgement.interval
    assert gap is not None and gap.low is not None and gap.high is not None
    half = 50 * (gap.high - gap.low)
    return f"{100 * gap.mean:+.2f} ± {half:.2f} {judgement.call}"


def measure_half_width(differences: np.ndarray) -> float:
    """Return half the interval of the mean of differences [blocks], by the default rule."""
    zeros = dict.fromkeys(range(len(differences)), 0.0)
    sample = Sample(zeros, {"row": dict(enumerate(map(float, differences)))})
    return load_rule(DEFAULT_RULE).compute_half_widths(sample)["row"][0]


def measure_class_half_width(differences: np.ndarray, queries: np.ndarray) -> float:
    zeros = dict.fromkeys(range(differences.shape[1]), 0.0)
    sample = Sample(zeros, {"row": zeros})
    return OverClasses({"row": differences}, queries).compute_half_widths(sample)["row"][0]


def measure_pilots(by_class: np.ndarray, queries: np.ndarray, by_split: np.ndarray) -> None:
    """Print how often the proposals of three kinds of pilot reach their half-widths.

    by_class: [C, seeds]; by_split: [splits, seeds]; both differences of the two rows.
    """
    rng, whole = np.random.default_rng(1), queries @ by_class / queries.sum()
    seeds, family = by_class.shape[1], Family(DEFAULT_RULE, 1)

    def draw(taken: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the seeds of a pilot, and all others, in random order."""
        order = rng.permutation(seeds)
        return order[:taken], order[taken:]

    def propose(runs: np.ndarray, wanted: float, splits: int | None, classes: Any) -> int | None:
        """Return the seeds of the proposal whose trials there are."""
        table = runs if splits else runs.T  # by block and seed of the block
        rows = [
            {b: dict(enumerate(map(float, row * sign))) for b, row in enumerate(table)}
            for sign in (0.0, 1.0)
        ]
        components = estimate_components(rows)
        assert components is not None
        pilot = Pilot("", METRIC, ({}, {}), splits, runs.size, components, family, classes)
        found = propose_designs(pilot, wanted, SHARES[0])
        if splits:
            found = [each for each in found if each.design.blocks == splits]
        best = choose_proposal(found)
        return None if best is None else best.design.seeds if splits else best.design.blocks

    def report(name: str, halves: Sequence[float | None], wanted: float) -> None:
        known = [half for half in halves if half is not None]
        reached = 100 * np.mean([half <= wanted for half in known])
        print(f"{name}: ±{100 * wanted:.2f} reached by {reached:.0f} % of {len(known)} proposals")

    wanted = float(
        np.quantile([measure_half_width(whole[draw(8)[0]]) for _ in range(PILOTS)], 0.95)
    )
    halves: list[float | None] = []
    for _ in range(PILOTS):
        pilot, others = draw(4)
        number = propose(whole[pilot][None], wanted, None, None)
        halves.append(number and measure_half_width(whole[others[:number]]))
    report("seeds", halves, wanted)

    def measure_classes(chosen: np.ndarray) -> float:
        return measure_class_half_width(by_class[:, chosen], queries)

    wanted = float(np.quantile([measure_classes(draw(8)[0]) for _ in range(PILOTS)], 0.95))
    halves = []
    for _ in range(PILOTS):
        pilot, others = draw(4)
        classes = estimate_class_variances(by_class[:, pilot], queries)
        number = propose(whole[pilot][None], wanted, None, classes)
        halves.append(number and measure_classes(others[:number]))
    report("classes", halves, wanted)

    def measure_splits(chosen: np.ndarray) -> float:
        return measure_half_width(by_split[:, chosen].mean(axis=1))

    wanted = float(np.quantile([measure_splits(draw(8)[0]) for _ in range(PILOTS)], 0.95))
    halves = []
    for _ in range(PILOTS):
        pilot, others = draw(2)
        number = propose(by_split[:, pilot], wanted, SPLITS, None)
        halves.append(number and measure_splits(others[:number]))
    report("splits", halves, wanted)


def collect_differences(
    ledger: Path, runs: Mapping[str, Mapping[Key, list[str]]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return [C, seeds] differences by class, [C] queries, and [splits, seeds] differences."""
    with Records(ledger) as records:

        def read_classes(trial: str) -> np.ndarray:
            return np.array(records.get_classes(trial)["test"]["metrics"][METRIC])

        def read_value(trial: str) -> float:
            return float(records.get_evaluations(trial)["test"][METRIC])

        whole = [[read_classes(trial) for trial in runs["whole"][row, None]] for row in ROWS]
        parts = [
            [[read_value(trial) for trial in runs["parts"][row, split]] for split in range(SPLITS)]
            for row in ROWS
        ]
    means = np.array(whole)[..., 0]  # by row, seed and class
    first, second = np.array(parts)
    return (means[1] - means[0]).T, whole[0][0][:, 1], second - first


def main(repetitions: int, out: Path) -> None:
    """Run all trials, and print each repetition, the agreement, and the nulls."""
    results = api.run(build_spec(repetitions), out=out, track=False, report=False)
    runs = load_runs(results.ledger, results.sweep_id)
    by_class, queries, by_split = collect_differences(results.ledger, runs)
    rng, agree, false_classes, false_splits = (
        np.random.default_rng(0),
        0,
        list[bool](),
        list[bool](),
    )
    for number in range(repetitions):
        seeds = slice(SEEDS * number, SEEDS * (number + 1))
        classes, splits = by_class[:, seeds], by_split[:, seeds].mean(axis=1)
        judged = judge_over_classes(classes, queries), judge_over_splits(splits)
        same = is_decided(judged[0]) and judged[0].call == judged[1].call
        agree += same
        print(
            f"{number:2}  classes {describe(judged[0])}  splits {describe(judged[1])}", flush=True
        )
        # exchange the rows' labels of random classes, and of splits in all ways
        signs = rng.choice([-1.0, 1.0], size=(EXCHANGES, len(queries), 1))
        false_classes += [is_decided(judge_over_classes(s * classes, queries)) for s in signs]
        ways = map(np.array, product([-1.0, 1.0], repeat=SPLITS))
        mixed = [way for way in ways if abs(way.sum()) < SPLITS]  # others exchange all or nothing
        false_splits += [is_decided(judge_over_splits(way * splits)) for way in mixed]
    print(f"the same winner: {agree} of {repetitions} ({100 * agree / repetitions:.0f} %)")
    for name, verdicts in (("classes", false_classes), ("splits", false_splits)):
        share = 100 * np.mean(verdicts)
        print(f"exchanged labels, over {name}: {share:.1f} % of {len(verdicts)} called different")
    measure_pilots(by_class, queries, by_split)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    main(given.repetitions, given.out)
