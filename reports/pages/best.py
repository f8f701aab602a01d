"""Write the best configuration of a study as a spec."""

from typing import Any

import yaml

from reports.frame import Frame
from reports.tables.cells import parse_setting, summarize_cells
from reports.tables.labels import to_slug

PLACES = {"splits": "data.split.part", "folds": "data.split.fold"}  # of a study → of a trial


def format_best_config(frame: Frame, study: str) -> str | None:
    """Return a spec that runs the best configuration of a study, or None without a result."""
    objective, is_maximized = frame.get_objective(study)
    cells = frame.select_study(study)  # of several searches, the first is written
    means = summarize_cells(cells[cells["study"] == study].assign(searches=None), objective)
    if not means:
        return None
    # the best cell and its finished trials, one for each seed and fold
    sign = 1 if is_maximized else -1
    cell = max(means, key=lambda name: sign * means[name].mean)
    cells = frame.cells
    rows = cells[(cells["study"] == study) & (cells["cell"] == cell) & (cells["status"] == "done")]
    trial_ids = list(dict.fromkeys(rows["trial_id"]))
    params = frame.trials.set_index("trial_id").loc[trial_ids[0], "params"]
    # the study's own splits or folds, not the place of its first trial
    units = {key: n for key in PLACES if (n := frame.get_declared_study(study).get(key))}
    study_paths = {f"{PLACES[key]}{ending}" for key in units for ending in ("", "s")}
    best = {"design": "compare", "variants": {study: {}}, **units, "evaluate": ["val", "test"]}
    spec = {
        "name": to_slug(f"best_{study}")[:100],  # the longest name that a spec may have
        "seeds": 3,
        "objective": objective,
        "trial": _unflatten_params({k: v for k, v in params.items() if k not in study_paths}),
        "studies": {"best": best},
        "report": {"tables": [{"kind": "compare", "study": "best", "metrics": [objective]}]},
    }
    summary, run_id = means[cell], rows["run_id"].iloc[0]
    head = [
        f"# The best configuration of study {study}, sweep {frame.document.get('sweep_id')}:",
        f"# cell {cell}, {objective} = {summary.mean:.6f} (mean of {summary.n}), run {run_id}",
        *(f"# weights, in the folder of runs: trials/{t}/best.safetensors" for t in trial_ids),
    ]
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)
    return "\n".join([*head, text])


def _unflatten_params(params: dict[str, str]) -> dict[str, Any]:
    """Return a run's nested configuration from its parameters (dotted path → text)."""
    tree: dict[str, Any] = {}
    for path, text in sorted(params.items()):
        *parents, last = path.split(".")
        branch = tree
        for name in parents:
            branch = branch.setdefault(name, {})
        branch[last] = parse_setting(text)
    return tree
