"""What the ledger knows of one trial that its MLflow run may lack, and how it is logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.ledger.ledger import Ledger
from ablate.tracking import payload

if TYPE_CHECKING:
    from mlflow import MlflowClient

BATCH_METRICS = 1000  # MLflow's limits for one call
BATCH_PARAMS = 100
BATCH_ALL = 1000


@dataclass
class News:
    """A trial as the ledger has it.

    mark: `payload.checksum` of its end, 0 while it runs. row: the ledger's row of its run, None
    if there is none. fresh: the run was made with the trial's present tags.
    """

    trial: payload.Row
    evaluations: dict[str, Any]
    cells: list[dict[str, Any]]
    parameters: dict[str, str]
    mark: int
    row: payload.Row | None
    fresh: bool = False

    @property
    def trial_id(self) -> str:
        return str(self.trial["trial_id"])

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        store: str,
        sweep_id: str,
        trial_id: str,
        settings: payload.Settings,
    ) -> News | None:
        """None if the run has everything, or the trial is only planned."""
        trial = ledger.trial(trial_id)
        if trial is None:
            return None
        ended = trial["status"] in payload.STATUS
        evaluations = ledger.evaluations(trial_id) if ended else {}
        found = ledger.cells_of(sweep_id, trial_id)
        cells = payload.cells_by_trial(found).get(trial_id, [])
        parameters = settings.parameters(trial["config"])
        mark = payload.checksum(trial, evaluations, cells, parameters) if ended else 0
        row = ledger.mlflow_run(store, sweep_id, trial_id)
        if row is not None and mark and row["logged_final"] == mark:
            return None
        return cls(trial, evaluations, cells, parameters, mark, row)

    def tags(self, sweep: payload.Row, parent_run_id: str) -> dict[str, str]:
        return payload.trial_tags(self.trial, sweep, parent_run_id, self.cells)

    def log(
        self, client: MlflowClient, ledger: Ledger, sweep: payload.Row, parent_run_id: str
    ) -> int:
        """Log it into its run (`row`), ending the run if the trial ended; the epoch up to which
        the run has every one. What a driver did not hear before it was killed comes later."""
        row, trial = self.row, self.trial
        assert row is not None
        run_id = row["run_id"]
        if row["logged_final"] and not self.mark:
            client.update_run(run_id, status="RUNNING")
        epochs = ledger.epochs(self.trial_id, after=row["logged_epoch"])
        metrics = list(payload.epoch_metrics(trial, epochs))
        if self.mark:
            recorded = ledger.recorded(self.trial_id)
            metrics += payload.final_metrics(trial, self.evaluations, recorded)
        # At the end again: by then trials may differ in more settings. MLflow keeps one of each.
        first = row["logged_epoch"] == 0
        params = list(self.parameters.items()) if first or self.mark else []
        tags = {} if self.fresh else self.tags(sweep, parent_run_id)
        log_batches(client, run_id, metrics, params, tags)
        if first:
            client.log_text(run_id, payload.as_yaml(trial["config"]), "config.yaml")
        if self.mark:
            log_inputs(client, run_id, payload.data_inputs(trial, self.evaluations))
            end = payload.milliseconds(trial["ended"] or trial["created"])
            client.set_terminated(run_id, payload.STATUS[trial["status"]], end_time=end)
        last = int(row["logged_epoch"])
        for epoch in epochs:
            last += epoch["epoch"] == last + 1
        return last


def log_inputs(
    client: MlflowClient, run_id: str, inputs: Sequence[tuple[str, str, str, str]]
) -> None:
    """Log data sets as a run's inputs; one that the run has already stays as it is."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if inputs:
        found = [
            DatasetInput(
                Dataset(name, digest, "local", source), [InputTag("mlflow.data.context", context)]
            )
            for name, digest, source, context in inputs
        ]
        client.log_inputs(run_id, found)


def log_batches(
    client: MlflowClient,
    run_id: str,
    metrics: Sequence[tuple[str, float, int, int]],
    params: Sequence[tuple[str, str]],
    tags: dict[str, str],
) -> None:
    """As few `log_batch` calls as MLflow's limits allow: one, for most trials."""
    from mlflow.entities import Metric, Param, RunTag

    metrics_left = [Metric(*metric) for metric in metrics]
    params_left = [Param(*param) for param in params]
    tags_left = [RunTag(key, value) for key, value in tags.items()]
    while metrics_left or params_left or tags_left:
        some_params, params_left = params_left[:BATCH_PARAMS], params_left[BATCH_PARAMS:]
        some_tags, tags_left = tags_left[:BATCH_PARAMS], tags_left[BATCH_PARAMS:]
        room = min(BATCH_METRICS, BATCH_ALL - len(some_params) - len(some_tags))
        some_metrics, metrics_left = metrics_left[:room], metrics_left[room:]
        client.log_batch(run_id, some_metrics, some_params, some_tags)
