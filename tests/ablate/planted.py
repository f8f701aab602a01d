"""A null method in every shipped comparison: does the procedure find a difference that is none?

    python -m tests.ablate.planted [--repetitions 400] [--noise 0.15 0.6] [NAME …]

Each method of a comparison changes nothing here, so that a verdict "better" or "worse" is false.
The studies are those of the file, with its designs, sizes, points, centres and finalists; seeds
differ between repetitions. The best configuration of each row is judged at fresh seeds, on as many
splits and seeds as the file says, by the rule of its report. Power is the share of rows that are
better once each of their values is raised by `GAIN` points: a gain that does not depend on weights
changes no search.

A trial costs nothing. Its metrics come from `planted.csv`: a smooth surface over the rates, for all
test classes and for each split, and a residual of one of its trials, scaled to the noise that is
asked for. The table has 352 trials of a head with the plain loss (NormSoftmax on typefaces), two
seeds of each configuration: 32 of a Sobol sequence over `RATES`, and 24 over `NEAR`, which were
trained on each split too. The range that a file's first search gives to an axis is stretched over
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
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator

from ablate.cli import main as command
from ablate.designs.base import list_upstream_studies
from ablate.designs.parts import Point
from ablate.ledger.facts import Fact, Facts
from ablate.ledger.ledger import Ledger
from ablate.plan.neutral import is_neutral
from ablate.plan.plan import Cell, Overrides, Plan
from ablate.spec.model import LoadedSpec
from ablate.spec.read import read_spec
from ablate.sweep.progression import Progression
from ablate.values.paths import get_at
from reports.stats.comparison_rule import Sample, judge, load_rule
from tests.ablate.synthetic import fingerprint
from tests.faults.machine import processor

STORED = Path(__file__).with_name("planted.csv")
SPACES = Path(__file__).parents[2] / "search_spaces"
METRICS = ("val", "test")
DELTA, GAIN = 0.3, 0.6  # smallest effect of interest and planted gain, in points of MAP@R
NOISES = (0.15, 0.6)  # standard deviation of a run's validation MAP@R, in points
MOST_FALSE, MOST_BIAS = 0.05, 0.02  # share of a row's verdicts, and points
NEW = "ablate new"
FILES = ("networks", "few_images_10", "few_images_4", "heads", "backbones")
GPU_FILES = ("gpu/networks", "gpu/few_images", "gpu/cub200")
PAPERS = ("papers/ddml_fair", "papers/detreg_fair", "papers/dvml_fair", "papers/idml_fair")
COMPARISONS = (*FILES, *GPU_FILES, *PAPERS, "papers/nir_fair", NEW)
# the rates at which the stored trials were measured, and the value of a rate that a file leaves out
RATES = {
    "optimizer.lr": (1e-4, 1e-2, 6e-3),
    "optimizer.multipliers.proxies": (1, 300, 60),
    "loss.temperature": (0.02, 0.5, 0.15),
}
NEAR = ((2e-3, 1e-2), (2, 200), (0.05, 0.5))  # the box that was trained on the splits too

Surface = tuple[RBFInterpolator, np.ndarray]  # of both metrics, and residuals ([trials, metrics])


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
    surfaces, box = {}, np.zeros((2, 3))
    for split, rows in sorted(trials.items()):
        rates, metrics = np.split(np.array(rows), [len(RATES)], axis=1)
        points, member = np.unique(scale_rates(rates), axis=0, return_inverse=True)
        means = np.array([metrics[member.ravel() == i].mean(0) for i in range(len(points))])
        is_near = ((points >= 0) & (points <= 1)).all(1)[member.ravel()]
        residuals = ((metrics - means[member.ravel()]) * 2**0.5)[is_near]  # of a mean of two
        if not split:
            box, unit = np.stack([points.min(0), points.max(0)]), residuals[:, 0].std()
        surfaces[split] = RBFInterpolator(points, means, degree=2), residuals / unit
    return surfaces, box


def measure(rates: np.ndarray, split: str, draws: np.ndarray, noise: float) -> np.ndarray:
    """Return the metrics of trials, [trials, metrics]; beyond the stored rates their edge counts.

    `draws` are numbers that choose the residuals.
    """
    surfaces, box = fit_surfaces()
    surface, residuals = surfaces[split]
    values: np.ndarray = surface(np.clip(rates, *box))
    return values + residuals[draws % len(residuals)] * noise / 100


@dataclass(eq=False)
class SurfaceFacts(Facts):
    """Facts in memory."""

    results: dict[str, Fact] = field(default_factory=dict)

    def __getitem__(self, trial_id: str) -> Fact:
        return self.results.get(trial_id, Fact(None, {}))


@dataclass(frozen=True)
class Comparison:
    """A comparison of a file, and the row of the plain loss that it is judged against.

    Attributes:
        groups: for each baseline, the studies whose best cells its rows are: first the baseline's.
        splits, seeds: of the judged cells.
    """

    loaded: LoadedSpec
    groups: list[list[str]]
    splits: list[str]
    seeds: int


def load_comparison(name: str, folder: Path, most_rows: int) -> Comparison:
    """Read a shipped comparison, or write one by `ablate new`."""
    path = SPACES / f"{name}.yaml"
    if name == NEW:
        path = folder / "new.yaml"
        command.main(["new", "new", "--goal", "compare", "--to", str(path)])
    loaded = read_spec(path)
    plan = Plan(loaded, Overrides(), fingerprint, Path())
    table = next(table for table in plan.spec.report.tables if table.kind == "compare")
    study = plan.spec.studies[table.study]
    groups: dict[str, list[str]] = {}
    for point in study.list_representatives():
        assert point is not None
        (around,) = study.list_needed_bases(point.levels)
        if around.take is not None:
            continue  # it takes the rates of another row
        rates, *_ = reversed(list_upstream_studies(plan.spec.studies, [around.best_of]))
        method = plan.build_layers(table.study, point, ()).merged["method"]["name"]
        rows = groups.setdefault(find_group(point, rates, groups), [])
        rows.insert(0 if method == "plain" else len(rows), around.best_of)
    splits = [""] if study.splits is None else [str(i) for i in range(study.splits)]
    return Comparison(
        loaded,
        [list(dict.fromkeys(g))[: most_rows + 1] for g in groups.values()],
        splits,
        len(plan.list_seeds(table.study)),
    )


def find_group(point: Point, rates: str, groups: Mapping[str, Any]) -> str:
    """Return the name of a row's family: its levels of all factors but the method, if it has any."""
    return str({k: v for k, v in point.coords.items() if k not in ("method", "variant")})


class Repetition:
    """One run of a comparison's searches and finalists, on the surface."""

    def __init__(
        self,
        comparison: Comparison,
        group: Sequence[str],
        ledger: Ledger,
        number: int,
        noise: float,
    ) -> None:
        """Give each study that tunes a row seeds of its own for this repetition."""
        self.comparison, self.group, self.noise = comparison, group, noise
        spec = comparison.loaded.spec
        shifted = {}
        for name, study in spec.studies.items():
            seeds = range(
                number * 10,
                number * 10 + (len(study.seeds) if isinstance(study.seeds, tuple) else 1),
            )
            shifted[name] = study.model_copy(
                update={"seeds": tuple(1000 + s + 5 * (not study.is_fixed) for s in seeds)}
            )
        spec = spec.model_copy(update={"studies": shifted})
        loaded = replace(comparison.loaded, spec=spec)
        self.plan = Plan(loaded, Overrides(studies=tuple(group)), fingerprint, Path())
        self.facts = SurfaceFacts(ledger, None, retry_failed=False)
        self.progression = Progression(self.plan, self.facts, record=False)
        self.random = np.random.default_rng([number, zlib.crc32(str(group).encode())])

    def read_rates(self, cells: Iterable[Cell]) -> np.ndarray:
        """Return the scaled rates of cells, [cells, axes]."""
        rates = []
        for cell in cells:
            axes = find_axes(self.plan, cell.study)
            row = []
            for path, (low, high, default) in RATES.items():
                known = axes.get(path)
                if known is None:
                    row.append(default)
                    continue
                own, axis = known
                ends = np.array([axis.low, axis.high, get_at(cell.config, own)], float)
                if axis.log:
                    ends = np.log(ends)
                share = (ends[2] - ends[0]) / (ends[1] - ends[0])
                row.append(low * (high / low) ** share)
            rates.append(row)
        return scale_rates(np.array(rates))

    def run(self) -> np.ndarray:
        """Run all studies; return test MAP@R of each row's best, [rows, splits, seeds], in points."""
        while fresh := self.progression.list_new_cells():
            draws = np.array([zlib.crc32(cell.trial_id.encode()) for cell in fresh])
            values = measure(self.read_rates(fresh), "", draws, self.noise)
            for cell, (val, _) in zip(fresh, values.tolist(), strict=True):
                self.facts.results[cell.trial_id] = Fact("done", {"val": {"map_at_r": val}})
        best = []
        for name in self.group:
            ranking = self.progression.ranking.rank_study(name)
            best.append(next(b.cell for b in ranking if not is_neutral(b.cell.config)))
        rates, seeds = self.read_rates(best), self.comparison.seeds
        rows = np.repeat(rates, seeds, axis=0)
        judged = [
            measure(rows, split, self.random.integers(1 << 30, size=len(rows)), self.noise)[:, 1]
            for split in self.comparison.splits
        ]
        return 100 * np.array(judged).reshape(len(judged), len(best), seeds).swapaxes(0, 1)


_axes: dict[Any, Any] = {}


def find_axes(plan: Plan, name: str) -> dict[str, Any]:
    """Map each stored rate to the path and axis of the first search that gives its range."""
    studies = plan.spec.studies
    key = (plan.spec.name, name)
    if key not in _axes:
        found: dict[str, Any] = {}
        for study in reversed(list_upstream_studies(studies, [name])):
            sampled = studies[study].sampling()
            for path, axis in () if sampled is None else sampled.space.items():
                stored = "loss.temperature" if path.startswith("loss.") else path
                found.setdefault(stored, (path, axis))
        _axes[key] = found
    return _axes[key]


def judge_rows(comparison: Comparison, values: np.ndarray) -> list[tuple[float, str, bool]]:
    """Return of each method's row its difference, the verdict, and whether GAIN more is better."""
    blocks = values.mean(2) if len(comparison.splits) > 1 else values[:, 0]
    rows = [dict(enumerate(row.tolist())) for row in blocks]
    report = comparison.loaded.spec.report
    sample = Sample(rows[0], {str(i): row for i, row in enumerate(rows[1:])})
    judgements = judge(load_rule(report.rule), sample, smallest=DELTA)
    results = []
    for judgement in judgements.values():
        gap = judgement.interval
        assert gap is not None
        low = gap.mean if gap.low is None else gap.low
        results.append((gap.mean, judgement.call or "same", low + GAIN > 0))
    return results


def simulate(
    name: str, repetitions: int, noise: float, most_rows: int, folder: Path
) -> dict[str, float]:
    comparison = load_comparison(name, folder, most_rows)
    ledger = Ledger(folder / "ledger.sqlite")
    results = [
        result
        for number in range(repetitions)
        for group in comparison.groups
        for result in judge_rows(
            comparison, Repetition(comparison, group, ledger, number, noise).run()
        )
    ]
    ledger.close()
    gaps, calls, found = zip(*results, strict=True)
    n = len(results)
    return {
        "rows": n,
        "bias": float(np.mean(gaps)),
        "sd": float(np.std(gaps)),
        "better": calls.count("better") / n,
        "worse": calls.count("worse") / n,
        "power": sum(found) / n,
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each comparison and noise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=COMPARISONS)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--rows", type=int, default=100, help="Methods of each comparison.")
    parser.add_argument("--noise", type=float, nargs="+", default=NOISES)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            for noise in given.noise:
                began = time.monotonic()
                r = simulate(name, given.repetitions, noise, given.rows, Path(folder))
                print(
                    f"| {name} | {noise} | {r['bias']:+.3f} | {100 * r['better']:.1f} % | {100 * r['worse']:.1f} % | {100 * r['power']:.0f} % | sd {r['sd']:.2f} n {r['rows']} {time.monotonic() - began:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
