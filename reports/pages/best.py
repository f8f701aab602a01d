"""Write the best configuration of a study as a spec."""

from __future__ import annotations

from typing import Any

import yaml

from reports.frame import Frame
from reports.tables.cells import parse_setting, summarize_cells
from reports.tables.labels import to_slug


def unflatten_params(params: dict[str, str]) -> dict[str, Any]:
    """Return the configuration from a run's flattened parameters."""
    tree: dict[str, Any] = {}
    for path, text in sorted(params.items()):
        *parents, last = path.split(".")
        branch = tree
        for name in parents:
            branch = branch.setdefault(name, {})
        branch[last] = parse_setting(text)
    return tree


def format_best_config(frame: Frame, study: str) -> str | None:
    """Return a spec that runs the best configuration of a study, or None if nothing has
    finished."""
    objective, most = frame.get_objective(study)
    means = summarize_cells(frame.select_study(study), objective)
    if not means:
        return None
    cell = max(means, key=lambda name: means[name].mean if most else -means[name].mean)
    value, rows = means[cell], frame.cells
    finished = rows[(rows["study"] == study) & (rows["cell"] == cell) & (rows["status"] == "done")]
    done = finished.iloc[0]
    trial = frame.trials[frame.trials["trial_id"] == done["trial_id"]].iloc[0]
    spec = {
        "name": to_slug(f"best_{study}")[:100],  # as long as a spec's may be
        "seeds": 3,
        "objective": objective,
        "trial": unflatten_params(trial["params"]),
        "studies": {
            "best": {"design": "compare", "variants": {study: {}}, "evaluate": ["val", "test"]}
        },
        "report": {"tables": [{"kind": "compare", "study": "best", "metrics": [objective]}]},
    }
    head = (
        f"# The best configuration of study {study}, sweep {frame.document.get('sweep_id')}:\n"
        f"# cell {cell}, {objective} = {value.mean:.6f} (mean of {value.n}), run {done['run_id']}\n"
    )
    # One for each seed and fold, which `trainables.load` reads.
    head += "".join(
        f"# weights, in the folder of runs: trials/{trial}/best.safetensors\n"
        for trial in dict.fromkeys(finished["trial_id"])
    )
    return head + yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)
