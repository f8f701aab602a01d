"""`ablate export SWEEP --to optuna`: a sweep's studies in an Optuna storage, for its dashboard.

A study of the sweep is one of Optuna's, a cell one of its trials, its value the mean over seeds and
folds of each objective. Nothing is read back from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ablate.cli.locate import ledger_path
from ablate.cli.options import add_out
from ablate.ledger import queries
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.samplers.space import Axis, Space
from ablate.tracking.store import ENV
from ablate.values.terminal import say
from reports.uri import clean
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

FILE = "optuna.db"


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write the studies of a sweep into an Optuna storage: each cell a trial, with "
        "its parameters, distributions, values (means over seeds), curve and state. As a table: "
        "`ablate ledger export`."
    )
    command.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    command.add_argument("--to", required=True, choices=("optuna",), help="what it is for")
    command.add_argument(
        "--storage",
        metavar="URI",
        help="its database, or env:NAME (default: optuna.db in --out)",
    )
    command.add_argument("--replace", action="store_true", help="write over studies that are there")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """0: all studies are there."""
    import optuna
    from optuna.exceptions import ExperimentalWarning, StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = ledger_path(args.out)
    uri = _named(args.storage) or f"sqlite:///{(path.parent / FILE).resolve()}"
    with Records(path) as records, warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        sweep = records.sweep(find_sweep(records, args.sweep, "SWEEP"))
        try:
            storage = optuna.storages.RDBStorage(uri)
        except (SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
            raise _unusable(uri, error) from error
        try:
            written = _written(storage, records, sweep, replace=args.replace)
        except (SQLAlchemyError, StorageInternalError) as error:
            raise _unusable(uri, error) from error
    for name, count in written.items():
        say(f"{name}: {count} trials")
    say(f"in {clean(uri)}; look at it with:\n  optuna-dashboard {clean(uri)}")
    return 0


def _named(storage: str | None) -> str | None:
    """A URI, or that in the environment variable which `env:NAME` names."""
    if storage is None or not storage.startswith(ENV):
        return storage
    name = storage.removeprefix(ENV)
    if not os.environ.get(name):
        raise ConfigError("--storage", f"{storage}, and no such variable", "one that is set")
    return os.environ[name]


def _unusable(uri: str, error: Exception) -> ConfigError:
    why = clean(str(error).strip().splitlines()[0])
    return ConfigError(
        "--storage",
        f"{clean(uri)} ({why})",
        "a database that Optuna can write",
        "As sqlite:///optuna.db, or leave it out",
    )


def _written(
    storage: BaseStorage, records: Records, sweep: Mapping[str, Any], *, replace: bool
) -> dict[str, int]:
    """Study → trials. Those that are there are replaced, or refused before any is written."""
    import optuna

    known = set(optuna.get_all_study_names(storage))
    names = {study: f"{sweep['name']}/{study}" for study in sweep["spec"]["studies"]}
    there = sorted(known & set(names.values()))
    if there and not replace:
        raise ConfigError(
            "--storage", f"{', '.join(there)}, which are there", "other studies", "Give --replace"
        )
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {study: {} for study in names}
    for row in records.cells(sweep["sweep_id"]):
        cells.setdefault(row["study"], {}).setdefault(row["cell"], []).append(row)
    facts = {row["trial_id"]: row for row in queries.trials_of(records, sweep["sweep_id"])}
    counts = {}
    for study, name in names.items():
        design = sweep["spec"]["studies"][study]
        goals = design.get("objectives") or [
            {"metric": sweep["spec"]["objective"], "direction": "maximize"}
        ]
        if name in known:
            optuna.delete_study(study_name=name, storage=storage)
        made = optuna.create_study(
            storage=storage, study_name=name, directions=[goal["direction"] for goal in goals]
        )
        made.set_metric_names([goal["metric"] for goal in goals])
        for key, value in (
            ("sweep", sweep["sweep_id"]),
            ("design", design["design"]),
            ("seeds", design.get("seeds")),
        ):
            made.set_user_attr(key, value)
        rows = list(cells[study].values())
        spread = _distributions(design, [cell[0]["coords"] for cell in rows])
        metrics = [MetricName.parse(goal["metric"]) for goal in goals]
        made.add_trials(_trial(records, cell, facts, metrics, spread) for cell in rows)
        counts[name] = len(rows)
    return counts


class Levels:
    """An axis of a design that draws nothing: the values that its cells have, as text where they
    are no plain ones."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.levels = tuple(dict.fromkeys(map(_plain, values)))

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.levels)

    def drawn(self, value: Any) -> Any:
        return _plain(value)


def _plain(value: Any) -> Any:
    """What an Optuna category may be."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return value if plain else json.dumps(value, sort_keys=True)


def _distributions(
    design: Mapping[str, Any], coords: Sequence[Mapping[str, Any]]
) -> dict[str, Axis | Levels]:
    """Of a search its space, of other designs the levels of each coordinate.

    Choices are categories by what they are, not by their index as samplers are told.
    """
    space: Space = {path: _axis(path, axis) for path, axis in (design.get("space") or {}).items()}
    found: dict[str, Axis | Levels] = {}
    for path in dict.fromkeys(path for each in coords for path in each):
        axis = space.get(path)
        values = [each[path] for each in coords if path in each]
        if axis is not None and axis.choice is None and all(map(axis.holds, values)):
            found[path] = axis
        else:
            found[path] = Levels([*(axis.choice or ()), *values] if axis is not None else values)
    return found


def _axis(path: str, axis: Any) -> Axis:
    """Read an axis of a recorded space.

    Raises:
        ConfigError: it is none.
    """
    try:
        return Axis.model_validate({k: v for k, v in axis.items() if v is not None})
    except (ValidationError, AttributeError) as error:
        raise ConfigError(
            f"space.{path}",
            f"{axis!r:.100}, which is no axis",
            "the search space of the sweep's spec",
            "The ledger was edited or damaged: restore it from a copy",
        ) from error


def _trial(
    records: Records,
    cell: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[MetricName],
    spread: Mapping[str, Axis | Levels],
) -> FrozenTrial:
    """One cell, at all its seeds and folds."""
    from optuna.trial import TrialState, create_trial

    rows = [facts[each["trial_id"]] for each in cell if each["trial_id"] in facts]
    evaluations = [records.evaluations(row["trial_id"]) for row in rows]
    values = [_mean(evaluations, metric) for metric in metrics]
    states = {row["status"] for row in rows}
    state, whole = TrialState.WAITING, None
    if "failed" in states:
        state = TrialState.FAIL
    elif len(rows) == len(cell) and states == {"done"} and None not in values:
        state, whole = TrialState.COMPLETE, [value for value in values if value is not None]
    elif "partial" in states:
        state = TrialState.PRUNED
    elif states:
        state = TrialState.RUNNING
    params = {path: spread[path].drawn(value) for path, value in cell[0]["coords"].items()}
    trial = create_trial(
        state=state,
        values=whole,
        params=params,
        distributions={path: spread[path].distribution() for path in params},
        intermediate_values=_curve(records, rows, metrics) if len(metrics) == 1 else {},
        user_attrs=_attributes(cell, rows, evaluations),
    )
    # Optuna wants both; a trial that came by import may lack them.
    started = [row["started"] or row["created"] for row in rows]
    ended = [row["ended"] or row["created"] for row in rows]
    if state != TrialState.WAITING:
        trial.datetime_start = datetime.fromtimestamp(min(started))
    if state.is_finished():
        trial.datetime_complete = datetime.fromtimestamp(max(ended))
    return trial


def _mean(evaluations: Sequence[Mapping[str, Any]], metric: MetricName) -> float | None:
    values = [found.get(metric.split, {}).get(metric.metric) for found in evaluations]
    known = [value for value in values if value is not None]
    whole = bool(known) and len(known) == len(values) and not any(map(math.isnan, known))
    return statistics.fmean(known) if whole else None


def _curve(
    records: Records, rows: Sequence[Mapping[str, Any]], metrics: Sequence[MetricName]
) -> dict[int, float]:
    """Epoch → the objective, the mean of the seeds that have reached it."""
    reached: dict[int, list[float]] = {}
    for row in rows:
        for epoch in records.epochs(row["trial_id"]):
            value = epoch["metrics"].get(str(metrics[0]))
            if value is not None:
                reached.setdefault(epoch["epoch"], []).append(value)
    return {epoch: statistics.fmean(values) for epoch, values in reached.items()}


def _attributes(
    cell: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, Any]:
    """What is beside: trials by seed, reasons of failures, the mean of every metric."""
    names = {(split, name) for found in evaluations for split in found for name in found[split]}
    means = {
        str(metric): _mean(evaluations, metric)
        for metric in (MetricName(split, name) for split, name in sorted(names))
    }
    reasons = sorted({row["reason"] for row in rows if row["reason"]})
    return {
        "cell": cell[0]["cell"],
        "trials": [each["trial_id"] for each in cell],
        **({"reasons": reasons} if reasons else {}),
        **{name: value for name, value in means.items() if value is not None},
    }
