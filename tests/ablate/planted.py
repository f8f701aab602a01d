"""A null method in every shipped comparison: does the procedure find a difference that is none?

    python -m tests.ablate.planted [--repetitions 400] [--noise 0.15 0.6] [NAME …]

A method changes nothing here, so that a verdict "better" or "worse" is false. The studies are those
of the file: its designs, sizes, points, centres and finalists, of the plain loss and of one method.
Repetitions differ in all seeds. The best configuration of each row with its method on is judged at
fresh seeds, on as many splits and seeds as the file says, by the rule of its report. Power is the
share of repetitions with the verdict "better" once each value of the method is raised by `GAIN`
points; a gain that does not depend on weights changes no search.

A trial costs nothing. Its metrics come from `planted.csv`: a smooth surface over the rates, for all
test classes and for each split, and a residual of one of its trials, scaled to the noise that is
asked for. The table has 352 trials of a head with the plain loss (NormSoftmax on typefaces), two
seeds of each configuration: 32 of a Sobol sequence over `RATES`, and 24 over `NEAR`, which were
trained on each split too. The range that the first search of a file gives an axis is stretched over
that of `RATES`; the first option of the loss stands for the temperature. All other axes, such as
the weights of methods, have no effect.
"""

import argparse
import csv
import datetime
import os
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator

from ablate.cli import main as command
from ablate.designs.base import list_upstream_studies
from ablate.designs.parts import Point, expand_seeds
from ablate.ledger.facts import Fact, Facts
from ablate.ledger.ledger import Ledger
from ablate.plan.inheritance import is_neutral
from ablate.plan.plan import Cell, Overrides, Plan
from ablate.search.space import Axis
from ablate.spec.model import LoadedSpec
from ablate.spec.read import read_spec
from ablate.sweep.progression import Progression
from reports.stats.comparison_rule import Sample, judge, load_rule
from tests.ablate.synthetic import fingerprint
from tests.faults.machine import processor
from trainables.words.paths import get_at

STORED = Path(__file__).with_name("planted.csv")
SPACES = Path(__file__).parents[2] / "search_spaces"
METRICS = ("val", "test")
DELTA, GAIN = 0.3, 0.6  # smallest effect of interest, and the planted gain, in points of MAP@R
NOISES = (0.15, 0.6)  # standard deviations of a run's validation MAP@R, in points
MOST_FALSE, MOST_BIAS = 0.05, 0.02  # share of verdicts, and points; beyond the error of simulation
NEW = "new"  # what `ablate new --goal compare` writes
# few_images_4.yaml, gpu/few_images.yaml and the other methods' papers/*_fair.yaml have equal stages
COMPARISONS = (
    *("networks", "few_images_10", "hier", "heads", "backbones", NEW),
    *("gpu/networks", "gpu/cub200", "papers/ddml_fair", "papers/detreg_fair"),
)
# the rates at which the stored trials were measured, and the value of one that no search varies
RATES = {
    "optimizer.lr": (1e-4, 1e-2, 6e-3),
    "optimizer.multipliers.proxies": (1, 300, 60),
    "loss.temperature": (0.02, 0.5, 0.15),
}
NEAR = ((2e-3, 1e-2), (2, 200), (0.05, 0.5))  # the box that was trained on the splits too

Surface = tuple[RBFInterpolator, np.ndarray]  # of both metrics, and residuals ([trials, metrics])


# ------------------------------------------------------------------ the stored surface


def scale_rates(rates: Any) -> np.ndarray:
    """Return rates, [trials, axes], on the scale on which `NEAR` is the unit cube."""
    low, high = np.log10(NEAR).T
    scaled: np.ndarray = (np.log10(rates) - low) / (high - low)
    return scaled


@cache
def fit_surfaces() -> tuple[dict[str, Surface], np.ndarray]:
    """Fit each split of the table, "" for all test classes; also return the box of all rates.

    A fit without one of the 16 best configurations of `NEAR` misses its test MAP@R on a split by
    0.18 points (root mean square). Its mean of two seeds has a standard error of 0.16 points.
    Residuals are in standard deviations of a run's validation MAP@R on all classes.
    """
    trials: dict[str, list[list[float]]] = defaultdict(list)
    with STORED.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            trials[row["split"]].append([float(row[name]) for name in (*RATES, *METRICS)])
    surfaces, box, unit = {}, np.zeros((2, 3)), 1.0
    for split, rows in sorted(trials.items()):  # "" is the first
        rates, metrics = np.split(np.array(rows), [len(RATES)], axis=1)
        points, member = np.unique(scale_rates(rates), axis=0, return_inverse=True)
        means = np.array([metrics[member.ravel() == i].mean(0) for i in range(len(points))])
        is_near = np.all((points >= 0) & (points <= 1), axis=1)[member.ravel()]
        residuals = ((metrics - means[member.ravel()]) * 2**0.5)[is_near]  # of a mean of two
        if not split:
            box, unit = np.stack([points.min(0), points.max(0)]), residuals[:, 0].std()
        surfaces[split] = RBFInterpolator(points, means, degree=2), residuals / unit
    return surfaces, box


def measure(rates: np.ndarray, split: str, draws: np.ndarray, noise: float) -> np.ndarray:
    """Return the metrics of trials, [trials, metrics]; beyond the stored rates their edge counts.

    Args:
        draws: numbers that choose a residual for each trial.
        noise: standard deviation of the residuals, in points.
    """
    surfaces, box = fit_surfaces()
    surface, residuals = surfaces[split]
    values: np.ndarray = surface(np.clip(rates, *box))
    values += residuals[draws % len(residuals)] * noise / 100
    return values


# ------------------------------------------------------------------ the comparison


class Comparison(NamedTuple):
    """A file's comparison of the plain loss with its first method.

    Attributes:
        rows: the studies whose best cells are compared, first that of the plain loss.
        splits: names of the splits; "" for all test classes.
        seeds: their number for each split.
        axes: study → stored rate → path and axis of the first search that varies it.
    """

    loaded: LoadedSpec
    rows: list[str]
    splits: list[str]
    seeds: int
    axes: dict[str, dict[str, tuple[str, Axis]]]


def load_comparison(name: str) -> Comparison:
    """Read a shipped comparison, or one that `ablate new` writes."""
    path = SPACES / (f"{name}.yaml" if "/" in name else f"comparisons/{name}.yaml")
    with tempfile.TemporaryDirectory() as folder:
        if name == NEW:
            path = Path(folder) / "new.yaml"
            command.main(["new", "new", "--goal", "compare", "--to", str(path)])
        loaded = read_spec(path)
    plan = Plan(loaded, Overrides(), fingerprint, Path())
    tables = (table for table in plan.spec.report.tables if table.kind == "compare")
    judged = next(table.study for table in tables)
    study = plan.spec.studies[judged]
    rows: dict[str, str] = {}  # method → study
    for point in filter(None, study.list_representatives()):
        method = plan.build_layers(judged, point, ()).merged["method"]["name"]
        rows.setdefault(method, study.list_needed_bases(point.levels)[0].best_of)
    (_, plain), (_, other), *_ = sorted(rows.items(), key=lambda row: row[0] != "plain")
    studies = plan.spec.studies
    axes: dict[str, dict[str, tuple[str, Axis]]] = {}
    for each in studies:
        axes[each] = {}
        for upstream in reversed(list_upstream_studies(studies, [each])):
            sampled = studies[upstream].sampling()
            for option, axis in () if sampled is None else sampled.space.items():
                rate = "loss.temperature" if option.startswith("loss.") else option
                axes[each].setdefault(rate, (option, axis))
    splits = [""] if study.splits is None else [str(i) for i in range(study.splits)]
    return Comparison(loaded, [plain, other], splits, len(plan.list_seeds(judged)), axes)


@dataclass(eq=False)
class SurfaceFacts(Facts):
    """The facts of trials in memory."""

    results: dict[str, Fact] = field(default_factory=dict)

    def __getitem__(self, trial_id: str) -> Fact:
        return self.results.get(trial_id, Fact(None, {}))


class SurfacePlan(Plan):
    """A plan whose cells are not validated, which takes most of the time of a repetition."""

    def build_cells(
        self, name: str, point: Point, idx: int, bases: Sequence[Mapping[str, Any]]
    ) -> list[Cell]:
        config = self.build_layers(name, point, bases).merged
        return [
            Cell(name, point.cell, point.coords, idx, s, f"{name}/{idx}/{s}", "", config, ("val",))
            for s in self.list_seeds(name)
        ]


def read_rates(comparison: Comparison, cells: Iterable[Cell]) -> np.ndarray:
    """Return the scaled rates of cells, [cells, axes]."""
    rates = []
    for cell in cells:
        axes, values = comparison.axes[cell.study], []
        for rate, (low, high, default) in RATES.items():
            values.append(default)
            if rate in axes:
                path, axis = axes[rate]
                ends = np.array([axis.low, get_at(cell.config, path), axis.high], float)
                start, value, end = np.log(ends) if axis.log else ends
                values[-1] = low * (high / low) ** ((value - start) / (end - start))
        rates.append(values)
    return scale_rates(np.array(rates))


def run_repetition(
    comparison: Comparison, ledger: Ledger, number: int, noise: float, salt: str = ""
) -> tuple[float, str, bool]:
    """Run all searches and judge the best of both rows; `salt` is part of the judged runs' seed.

    Returns:
        The method's difference, the verdict, and whether a method that gains `GAIN` is better.
    """
    # give each study seeds of its own in this repetition
    spec, studies = comparison.loaded.spec, {}
    for name, study in comparison.loaded.spec.studies.items():
        seeds = expand_seeds(spec.seeds if study.seeds is None else study.seeds)
        shifted = tuple(1000 * (number + 1) + seed for seed in seeds)
        studies[name] = study.model_copy(update={"seeds": shifted})
    spec = spec.model_copy(update={"studies": studies})
    loaded = replace(comparison.loaded, spec=spec)
    plan = SurfacePlan(loaded, Overrides(studies=tuple(comparison.rows)), fingerprint, Path())
    # run what tunes both rows
    facts = SurfaceFacts(ledger, None, retry_failed=False)
    progression = Progression(plan, facts, record=False)
    while fresh := progression.list_new_cells():
        draws = np.array([zlib.crc32(f"{cell.trial_id}".encode()) for cell in fresh])
        metrics = measure(read_rates(comparison, fresh), "", draws, noise)
        for cell, (val, _) in zip(fresh, metrics.tolist(), strict=True):
            facts.results[cell.trial_id] = Fact("done", {"val": {"map_at_r": val}})
    rankings = map(progression.ranking.rank_study, comparison.rows)
    best = [next(b.cell for b in each if not is_neutral(b.cell.config)) for each in rankings]
    # judge the best of both
    random, count = np.random.default_rng([zlib.crc32(salt.encode()), number]), comparison.seeds
    rates = np.repeat(read_rates(comparison, best), count, axis=0)
    blocks = []
    for split in comparison.splits:
        draws = random.integers(1 << 30, size=len(rates))
        blocks.append(100 * measure(rates, split, draws, noise)[:, 1].reshape(2, count))
    values = np.array(blocks).mean(2).T if len(blocks) > 1 else blocks[0]  # [rows, blocks]
    plain, method = (dict(enumerate(row)) for row in values.tolist())
    rule, sample = load_rule(spec.report.rule), Sample(plain, {"method": method})
    judgement = judge(rule, sample, smallest=DELTA)["method"]
    gap = judgement.interval
    assert gap is not None and gap.low is not None
    return gap.mean, str(judgement.call), gap.low + GAIN > 0


def simulate(name: str, repetitions: int, noise: float) -> dict[str, float]:
    """Repeat a comparison; return bias and standard deviation in points, and shares."""
    comparison = load_comparison(name)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite")
        salt = f"{name} {noise}"  # comparisons have draws of their own
        runs = [run_repetition(comparison, ledger, i, noise, salt) for i in range(repetitions)]
        ledger.close()
    gaps, calls, found = zip(*runs, strict=True)
    shares = {call: calls.count(call) / repetitions for call in ("better", "worse")}
    return {"bias": np.mean(gaps), "sd": np.std(gaps), **shares, "power": np.mean(found)}


def main() -> None:
    """Print a row of the table in `tests/faults/soak.md` for each comparison and noise."""
    parser = argparse.ArgumentParser(description="Simulate a null method in shipped comparisons.")
    parser.add_argument("names", nargs="*", default=COMPARISONS)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISES)
    given = parser.parse_args()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(f"{today}, {processor()}, {os.cpu_count()} cores, {given.repetitions} repetitions")
    faults = []
    for name in given.names:
        for noise in given.noise:
            began = time.process_time()
            result = simulate(name, given.repetitions, noise)
            seconds = time.process_time() - began
            shares = (f"{100 * result[key]:.1f} %" for key in ("better", "worse", "power"))
            parts = [name, str(noise), f"{result['bias']:+.3f}", *shares, f"{seconds:.0f} s"]
            print(f"| {' | '.join(parts)} |", flush=True)
            # beyond what chance gives in this number of repetitions
            error = 3 / given.repetitions**0.5
            is_biased = abs(result["bias"]) > MOST_BIAS + error * result["sd"]
            wrong = result["better"] + result["worse"]
            if is_biased or wrong > MOST_FALSE + error * (MOST_FALSE * (1 - MOST_FALSE)) ** 0.5:
                faults.append(f"{name} at noise {noise}")
    assert not faults, f"more bias or false verdicts than stated: {', '.join(faults)}"


if __name__ == "__main__":
    main()
