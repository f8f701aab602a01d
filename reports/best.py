"""Choose the best cell of a study, and write its configuration as a spec that runs it.

`ablate best`, `results.best()` and the report choose and write by this module, and so give the same
spec.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from reports.frame import get_main_objective, list_objectives
from reports.tables.labels import to_slug

if TYPE_CHECKING:
    from reports.frame import DataFrame, Frame

PLACES = {"splits": "part", "folds": "fold"}  # key of a study → of `data.split` in its trials
CARRIED = (*PLACES, "objectives", "metrics")  # keys of a study that its best configuration keeps
Key = TypeVar("Key")


@dataclass(frozen=True)
class BestCell:
    """The best cell of a study."""

    cell: str
    value: float  # mean of the first objective over its finished trials
    trials: tuple[str, ...]  # ids of its finished trials, the best one first
    seeds: tuple[int, ...]  # of these trials


def average_values(values: Sequence[Sequence[float | None]]) -> tuple[float, ...] | None:
    """Return each objective's mean over a cell's trials; None if a value is missing or infinite."""
    numbers = [[math.nan if value is None else value for value in row] for row in values]
    columns = [*zip(*numbers, strict=True)]
    if not columns or not all(math.isfinite(value) for row in numbers for value in row):
        return None
    return tuple(math.fsum(column) / len(column) for column in columns)


def rank_cells(
    means: Mapping[Key, tuple[float, ...] | None], objectives: Sequence[tuple[str, bool]]
) -> list[tuple[Key, tuple[float, ...]]]:
    """Return the cells that have means of the objectives, with these means, best first.

    The first objective decides, on a tie the next one, and finally the order in `means`.
    """
    signs = [-1 if is_higher_better else 1 for _, is_higher_better in objectives]
    ranked = [(cell, values) for cell, values in means.items() if values is not None]
    return sorted(ranked, key=lambda item: [s * x for s, x in zip(signs, item[1], strict=True)])


def find_best_cell(cells: "DataFrame", objectives: Sequence[tuple[str, bool]]) -> BestCell | None:
    """Return the cell of a study that its sweep ranks first by the results so far; None if none.

    Cells that broke the limits of their search, cells with a failed trial, and cells with fewer
    trials than others, which a race has dropped, are left out. While trials are missing, the cells
    with the most results are compared.

    Args:
        cells: the study's rows of `Frame.cells`.
    """
    metrics, rows = [metric for metric, _ in objectives], dict[str, list[Mapping[Any, Any]]]()
    for row in cells[cells["status"] != "infeasible"].to_dict("records"):
        rows.setdefault(row["cell"], []).append(row)
    n_trials = max(map(len, rows.values()), default=0)
    finished = {
        cell: [row for row in group if row["status"] == "done"]
        for cell, group in rows.items()
        if len(group) == n_trials and all(row["status"] != "failed" for row in group)
    }
    n_results = max(map(len, finished.values()), default=0)
    means = {
        cell: average_values([[row.get(metric) for metric in metrics] for row in group])
        for cell, group in finished.items()
        if len(group) == n_results
    }
    ranked = rank_cells(means, objectives)
    if not ranked:
        return None
    cell, values = ranked[0]
    metric, is_higher_better = objectives[0]
    best_first = sorted(finished[cell], key=lambda row: row[metric], reverse=is_higher_better)
    trial_ids = tuple(str(row["trial_id"]) for row in best_first)
    return BestCell(cell, values[0], trial_ids, tuple(int(row["seed"]) for row in best_first))


def list_unit_paths(declared: Mapping[str, Any]) -> list[str]:
    """Return the paths of a trial that a study with splits or folds sets for each of them."""
    keys = [PLACES[key] for key in PLACES if declared.get(key)]
    return [f"data.split.{key}{end}" for key in keys for end in ("", "s")]


def format_best_spec(
    document: Mapping[str, Any],
    study: str,
    best: BestCell,
    config: Mapping[str, Any],
    notes: Iterable[str],
) -> str:
    """Return a spec in YAML whose plan has the best cell's trials, with comments above.

    Args:
        document: the sweep: `name`, `sweep_id`, `objective` and `studies`.
        study: the name of the study.
        best: its best cell.
        config: the configuration of one of the cell's trials. Its own split or fold is left out,
            because the spec has all those of the study.
        notes: further lines of comments.
    """
    declared = document["studies"].get(study) or {}
    (metric, _), *_ = list_objectives(document, study)
    data, paths = config.get("data") or {}, list_unit_paths(declared)
    split = data.get("split") or {}
    split = {key: value for key, value in split.items() if f"data.split.{key}" not in paths}
    # each split has seeds of its own, from those that the study lists, unless all share these
    shift = declared.get("split_shift")
    shared = {"split_seeds": "shared"} if declared.get("splits") and not shift else {}
    spec = {
        "name": to_slug(f"best_{document['name']}_{study}")[:100],  # the longest name of a spec
        "seeds": sorted({seed % shift if shift else seed for seed in best.seeds}),
        "objective": get_main_objective(document),
        "trial": {**config, "data": {**data, "split": split}},
        "studies": {
            "best": {
                "design": "compare",
                "variants": {study: {}},
                **{key: declared[key] for key in CARRIED if declared.get(key)},
                **shared,
                "evaluate": list(dict.fromkeys([*declared.get("evaluate", ()), "test"])),
            }
        },
        "report": {"tables": [{"kind": "compare", "study": "best", "metrics": [metric]}]},
    }
    count = f"mean of {len(best.trials)} trials" if len(best.trials) > 1 else "one trial"
    lines = [
        f"The best configuration of study {study}, sweep {document['name']} "
        f"({document['sweep_id']}):",
        f"cell {best.cell}, {metric} = {best.value:.6f} ({count})",
        *notes,
    ]
    comments = [f"# {' '.join(line.splitlines())}".rstrip() for line in lines]
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)
    return "\n".join([*comments, text])


def format_best_config(frame: "Frame", study: str) -> str | None:
    """Return the best configuration of a study in a frame as a spec, or None without a result.

    Of several searches, the first one is written.
    """
    cells = frame.cells[frame.cells["study"] == study]
    best = find_best_cell(cells, list_objectives(frame.document, study))
    if best is None:
        return None
    first = frame.trials.set_index("trial_id").loc[best.trials[0]]
    notes = [f"run {first['run_id']}"]
    notes += [f"weights, in the folder of runs: trials/{t}/best.safetensors" for t in best.trials]
    return format_best_spec(frame.document, study, best, first["config"], notes)
