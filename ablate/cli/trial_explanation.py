"""Explain by the ledger why a trial exists, and what it shares with others."""

from collections.abc import Iterator

from ablate.designs.parts import NEUTRAL
from ablate.designs.promote import SOURCE
from ablate.ledger import queries
from ablate.ledger.columns import Row
from ablate.ledger.records import Records
from ablate.results import read_frame
from ablate.sweep.progression import list_earlier_of_round
from reports.best import find_best_cell
from reports.frame import list_objectives
from reports.tables.labels import format_level


def explain_trial(records: Records, trial: Row) -> str:
    """Say what a trial trains, which cells need it, who proposed it, and what it shares."""
    config, cells = trial["config"], queries.list_cells_of_trial(records, trial["trial_id"])
    names = (f"{key} {config[key]['name']}" for key in ("method", "loss", "data", "backbone"))
    lines = [
        f"Trial {trial['trial_id']} trains {', '.join(names)} ({config['backbone']['mode']}) for "
        f"{config['training']['epochs']} epochs, with seed {trial['seed']}. It is "
        f"{trial['status']}. `ablate ledger show {trial['trial_id']}` prints its results.",
        "\nWhy it exists",
        *(f"- {_explain_cell(records, trial, cell)}" for cell in cells),
        *([] if cells else ["- No sweep of this ledger needs it."]),
        "\nWhat it shares",
        *(f"- {text}" for text in _list_shared(trial, len(cells), queries.list_trials(records))),
    ]
    return "\n".join(lines)


def _explain_cell(records: Records, trial: Row, cell: Row) -> str:
    """Say which study needs a trial, as which cell, and where the cell's settings come from."""
    spec, rows = records.get_sweep(cell["sweep_id"])["spec"], records.list_cells(cell["sweep_id"])
    study = (spec.get("studies") or {}).get(cell["study"]) or {}
    same_study = [row for row in rows if row["study"] == cell["study"]]
    row = next(row for row in same_study if row["cell"] == cell["cell"])
    address, design = queries.format_cell_address(cell), study.get("design")
    text = f"Sweep {cell['name']} ({cell['sweep_id']}) needs it in a {design} study, as {address}."
    proposals = queries.list_proposals_of_trial(records, trial["trial_id"])
    key = next((each["study_key"] for each in proposals if each["idx"] == row["idx"]), None)
    if cell["cell"] == NEUTRAL:
        text += f" The method is switched off, at the best values of {study[NEUTRAL]['best_of']}."
    elif design == "search" and key is not None:
        frame = read_frame(records, cell["sweep_id"])
        objectives = list_objectives(frame.document, cell["study"])
        known, sentences = _explain_proposal(records.list_proposals(key), row["idx"], study)
        of_study = frame.cells[frame.cells["study"] == cell["study"]]
        best = find_best_cell(of_study[of_study["idx"].isin(known)], objectives)
        text += sentences
        text += f" The best of them by {objectives[0][0]} was {best.cell}." if best else ""
    elif SOURCE in row["coords"]:
        text += f" It trains cell {row['coords'][SOURCE]} of {study.get('of')} again."
    else:
        text += " The spec lists this cell."
    lineage = spec.get("lineages", {}).get(cell["study"], {}).get(cell["cell"], {})
    bases = [f"{base} ({count} trials)" for base, count in lineage.items()]
    bases = bases or [around["best_of"] for around in study.get("around") or ()]
    return text + (f" Its other settings were chosen by {', '.join(bases)}." if bases else "")


def _explain_proposal(rows: dict[int, Row], idx: int, study: Row) -> tuple[list[int], str]:
    """Return the proposals whose results were known when `idx` was proposed, and say who did so."""
    row, size, infeasible = rows[idx], study["round"], [i for i in rows if rows[i]["infeasible"]]
    values = ", ".join(f"{path} {format_level(value)}" for path, value in row["params"].items())
    if idx < len(study.get("points") or ()):
        return [], f" The spec lists it among the first points of the search: {values}."
    is_round = isinstance(size, int)  # else the search is asynchronous
    waiting = list_earlier_of_round(idx, infeasible, size) if is_round else row["beside"]
    known = [i for i in range(idx) if i not in {*waiting, *infeasible}]
    sampler = study["sampler"] if isinstance(study["sampler"], str) else study["sampler"]["name"]
    text = f" The sampler {sampler} proposed it as number {idx + 1} of {study['trials']}: {values}."
    text += f" It knew the results of {len(known)} earlier proposals."
    if sampler in ("tpe", "gp") and len(known) < study["startup"]:
        text += f" {sampler} draws at random until it knows {study['startup']} results."
    return known, text


def _list_shared(trial: Row, n_cells: int, trials: list[Row]) -> Iterator[str]:
    """Yield what a trial shares with other cells and trials: itself, features, checkpoints."""
    if n_cells > 1:
        yield f"These {n_cells} cells are equal in all settings, so one trial serves all of them."
    equal = [row["trial_id"] for row in trials if row["config_hash"] == trial["config_hash"]]
    yield f"Trials of its configuration, each with another seed: {', '.join(equal)}."
    images = [
        [row["config"]["backbone"], *map(row["config"]["data"].get, ("name", "root", "image_size"))]
        for row in [trial, *trials]
    ]
    if trial["config"]["backbone"]["mode"] == "frozen":
        same = images.count(images[0]) - 2
        yield f"The features of its frozen backbone are computed once, and for {same} others."
    if trial["checkpoint"]:
        yield f"Another machine can continue from its checkpoint in storage: {trial['checkpoint']}."
    elif trial["status"] != "done":
        yield "The same `ablate run` continues it from its own checkpoint, which no trial shares."
