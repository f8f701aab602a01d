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
from ablate.ledger.records import Records
from ablate.ledger.results import cells_by_study, objectives
from ablate.samplers.space import Axis
from ablate.tracking.store import ENV
from ablate.values.terminal import say
from reports.uri import clean
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Row = Mapping[str, Any]


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write the studies of a sweep into an Optuna storage: each cell a trial, with "
        "its parameters, distributions, values (means over seeds), curve and state. As a table: "
        "`ablate ledger export`."
    )
    command.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    command.add_argument("--to", required=True, choices=("optuna",), help="what it is for")
    command.add_argument(
        "--storage", metavar="URI", help="its database, or env:NAME (default: optuna.db in --out)"
    )
    command.add_argument("--replace", action="store_true", help="write over studies that are there")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Write all studies; return 0."""
    import optuna
    from optuna.exceptions import ExperimentalWarning, StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = ledger_path(args.out)
    uri = args.storage or f"sqlite:///{(path.parent / 'optuna.db').resolve()}"
    if uri.startswith(ENV):
        variable = uri.removeprefix(ENV)
        if not os.environ.get(variable):
            raise ConfigError("--storage", f"{uri}, and no such variable", "one that is set")
        uri = os.environ[variable]
    with Records(path) as records, warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        sweep = records.sweep(queries.find_sweep(records, args.sweep, "SWEEP"))
        try:
            storage = optuna.storages.RDBStorage(uri)
            counts = _write_studies(storage, records, sweep, replace=args.replace)
        except ConfigError:
            raise
        except (
            SQLAlchemyError,
            StorageInternalError,
            ImportError,
            ValueError,
            RuntimeError,
        ) as error:
            why = clean(str(error).strip().splitlines()[0])
            raise ConfigError(
                "--storage",
                f"{clean(uri)} ({why})",
                "a database that Optuna can write",
                "As sqlite:///optuna.db, or leave it out",
            ) from error
    for name, count in counts.items():
        say(f"{name}: {count} trials")
    say(f"in {clean(uri)}; look at it with:\n  optuna-dashboard {clean(uri)}")
    return 0


def _write_studies(
    storage: BaseStorage, records: Records, sweep: Row, *, replace: bool
) -> dict[str, int]:
    """Write each study and return its number of trials; refuse studies that are there, unless they
    may be replaced, before any is written."""
    import optuna

    known = set(optuna.get_all_study_names(storage))
    names = {study: f"{sweep['name']}/{study}" for study in sweep["spec"]["studies"]}
    present = sorted(known & set(names.values()))
    if present and not replace:
        raise ConfigError(
            "--storage", f"{', '.join(present)}, which are there", "other studies", "Give --replace"
        )
    cells = cells_by_study(records, sweep["sweep_id"])
    facts = {row["trial_id"]: row for row in queries.trials_of(records, sweep["sweep_id"])}
    counts = {}
    for study, name in names.items():
        design = sweep["spec"]["studies"][study]
        goals = dict(objectives(sweep["spec"], study))
        if name in known:
            optuna.delete_study(study_name=name, storage=storage)
        written = optuna.create_study(
            storage=storage,
            study_name=name,
            directions=["maximize" if most else "minimize" for most in goals.values()],
        )
        written.set_metric_names(list(goals))
        written.set_user_attr("sweep", sweep["sweep_id"])
        written.set_user_attr("design", design["design"])
        written.set_user_attr("seeds", design.get("seeds"))
        rows = list(cells.get(study, {}).values())
        distributions = _build_distributions(design, [cell[0]["coords"] for cell in rows])
        metrics = [MetricName.parse(metric) for metric in goals]
        written.add_trials(
            _build_trial(records, cell, facts, metrics, distributions) for cell in rows
        )
        counts[name] = len(rows)
    return counts


def _category(value: Any) -> Any:
    """Return what an Optuna category may be: text, where the value is no plain one."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return value if plain else json.dumps(value, sort_keys=True)


def _build_distributions(
    design: Row, coords: Sequence[Mapping[str, Any]]
) -> dict[str, BaseDistribution]:
    """Return the ranges of a search, and of choices and all other coordinates the categories.

    Categories are the values themselves, not their index, as samplers are told.

    Raises:
        ConfigError: an axis of the recorded space is none.
    """
    from optuna.distributions import CategoricalDistribution

    distributions: dict[str, BaseDistribution] = {}
    for path in dict.fromkeys(path for each in coords for path in each):
        values = [each[path] for each in coords if path in each]
        if recorded := (design.get("space") or {}).get(path):
            try:
                axis = Axis.model_validate({k: v for k, v in recorded.items() if v is not None})
            except (ValidationError, AttributeError) as error:
                raise ConfigError(
                    f"space.{path}",
                    f"{recorded!r:.100}, which is no axis",
                    "the search space of the sweep's spec",
                    "The ledger was edited or damaged: restore it from a copy",
                ) from error
            if axis.choice is None and all(map(axis.holds, values)):
                distributions[path] = axis.distribution()
                continue
            values = [*(axis.choice or ()), *values]
        distributions[path] = CategoricalDistribution(tuple(dict.fromkeys(map(_category, values))))
    return distributions


def _build_trial(
    records: Records,
    cell: Sequence[Row],
    facts: Mapping[str, Row],
    metrics: Sequence[MetricName],
    distributions: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    """Return one cell, at all its seeds and folds, as a trial of Optuna."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    rows = [facts[each["trial_id"]] for each in cell if each["trial_id"] in facts]
    evaluations = [records.evaluations(row["trial_id"]) for row in rows]
    values = [_mean(evaluations, metric.split, metric.metric) for metric in metrics]
    known = [value for value in values if value is not None]
    states = {row["status"] for row in rows}
    state = TrialState.WAITING
    if "failed" in states:
        state = TrialState.FAIL
    elif len(rows) == len(cell) and states == {"done"} and len(known) == len(values):
        state = TrialState.COMPLETE
    elif "partial" in states:
        state = TrialState.PRUNED
    elif states:
        state = TrialState.RUNNING
    # the mean of the seeds that reached an epoch
    curve: dict[int, list[float]] = {}
    for row in rows if len(metrics) == 1 else ():
        for epoch in records.epochs(row["trial_id"]):
            if (value := epoch["metrics"].get(str(metrics[0]))) is not None:
                curve.setdefault(epoch["epoch"], []).append(value)
    params = {
        path: _category(value)
        if isinstance(distributions[path], CategoricalDistribution)
        else value
        for path, value in cell[0]["coords"].items()
    }
    attributes = {"cell": cell[0]["cell"], "trials": [each["trial_id"] for each in cell]}
    if reasons := sorted({row["reason"] for row in rows if row["reason"]}):
        attributes["reasons"] = reasons
    for split, name in sorted(
        {(s, name) for each in evaluations for s in each for name in each[s]}
    ):
        if (mean := _mean(evaluations, split, name)) is not None:
            attributes[str(MetricName(split, name))] = mean
    trial = create_trial(
        state=state,
        values=known if state == TrialState.COMPLETE else None,
        params=params,
        distributions={path: distributions[path] for path in params},
        intermediate_values={epoch: statistics.fmean(each) for epoch, each in curve.items()},
        user_attrs=attributes,
    )
    # Optuna wants both; a trial that came by import may lack them.
    if state != TrialState.WAITING:
        starts = (row["started"] or row["created"] for row in rows)
        trial.datetime_start = datetime.fromtimestamp(min(starts))
    if state.is_finished():
        ends = (row["ended"] or row["created"] for row in rows)
        trial.datetime_complete = datetime.fromtimestamp(max(ends))
    return trial


def _mean(evaluations: Iterable[Mapping[str, Row]], split: str, metric: str) -> float | None:
    """Return the mean over trials; None where one of them lacks it."""
    values = [each.get(split, {}).get(metric) for each in evaluations]
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.fmean(known) if known and len(known) == len(values) else None
