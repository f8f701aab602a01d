"""Write the trials of a sweep to Weights & Biases, each as a run with the trial's id.

The variables and settings of the package wandb decide where runs go, such as `WANDB_MODE` and
`WANDB_BASE_URL`. Offline, runs lie in OUT/wandb until `wandb sync` uploads them.

A run that a killed process has left is resumed on the server after its last step. An offline run
cannot be resumed, so it is removed, and written again from the ledger.
"""

import os
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.tracking import payload
from ablate.tracking.tracker import OPTION, TRACKERS, TrialRun, TrialTracker
from trainables.core.runtime import check_trial_id
from trainables.words.errors import ConfigError

if TYPE_CHECKING:
    import wandb

FOLDER = "wandb"  # in the output folder, by the package's own choice
OFFLINE = ("offline", "dryrun")  # values of WANDB_MODE
LONGEST_NAME, LONGEST_TAG = 128, 64  # characters that the server accepts


@TRACKERS.register("wandb")
class WandbTracker(TrialTracker):
    """Runs in a project of Weights & Biases: `wandb`, `wandb:PROJECT` or `wandb:ENTITY/PROJECT`.

    Without PROJECT the project is that of `WANDB_PROJECT`, or has the sweep's name.
    """

    name, kind = "Weights & Biases", "wandb"

    def __init__(self, option: str, out: Path) -> None:
        super().__init__(option, out)
        entity, _, self.project = option.partition(":")[2].rpartition("/")
        self.entity = entity or None  # None: the user's own
        self._runs: dict[str, wandb.Run] = {}  # open runs by trial

    def is_away(self, error: BaseException) -> bool:
        is_own = type(error).__module__.partition(".")[0] == "wandb"  # many classes, without a base
        return is_own or super().is_away(error)

    def check_usable(self) -> None:
        """Raise ConfigError if wandb is missing, refuses its settings, or has no account to use."""
        if find_spec("wandb") is None:
            raise ConfigError(
                OPTION,
                "the package wandb is not installed",
                f"Run `pip install 'wandb>=0.31'`, or leave {self.store} out",
            )
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # errors would go to its makers
        import wandb

        try:
            wandb.Settings(project=self.project or None, entity=self.entity)  # checks the names
            mode = wandb.setup().settings.mode
            is_ready = mode in OFFLINE or (mode != "disabled" and wandb.login(prompt=False))
        except (wandb.Error, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                OPTION,
                f"{self.store} cannot be used: {reason}",
                "Correct the option, or what it names",
            ) from error
        if not is_ready:
            raise ConfigError(
                OPTION,
                "Weights & Biases is disabled, or knows no account on this machine",
                "Run `wandb login`, or `export WANDB_MODE=offline` to upload runs later",
            )

    def write(self, run: TrialRun) -> None:
        """Log what the trial's run lacks; start the package's own process anew if it has died."""
        import wandb
        from wandb.sdk.mailbox import MailboxClosedError

        try:
            self._log_run(run)
        except (ConnectionError, MailboxClosedError):
            self._runs.clear()
            with suppress(SystemExit):  # with the exit code of the process
                wandb.teardown()
            raise

    def _log_run(self, run: TrialRun) -> None:
        """Log the epochs that the trial's run lacks, and finish the run if the trial has ended."""
        trial, trial_id = run.trial, run.trial["trial_id"]
        wandb_run = self._runs.pop(trial_id, None) or self._open_run(run)
        for row in run.epochs:
            if row["epoch"] >= wandb_run.step:  # the next step that the run accepts
                points = list(payload.iterate_epoch_metrics(trial, [row]))
                values = {key: value for key, value, *_ in points}
                if points:
                    values["_timestamp"] = points[0][2] / 1000  # when the epoch was trained
                wandb_run.log(values, step=row["epoch"], commit=True)
        if trial["status"] in payload.STATUS:
            wandb_run.summary.update({key: value for key, value, *_ in run.final})
            wandb_run.finish(exit_code=0 if trial["status"] in ("done", "partial") else 1)
        else:
            self._runs[trial_id] = wandb_run

    def close(self) -> None:
        """Finish the runs of trials that were left running."""
        while self._runs:
            self._runs.popitem()[1].finish()

    def _open_run(self, run: TrialRun) -> "wandb.Run":
        """Create the run of a trial, or resume a run that the server has."""
        import wandb

        trial, sweep = run.trial, run.sweep
        trial_id = check_trial_id(trial["trial_id"])
        for folder in (self.out / FOLDER).glob(f"offline-run-*-{trial_id}"):
            shutil.rmtree(folder)
        first = run.cells[0]
        names = {"seed": trial["seed"], "study": first["study"], "cell": first["cell"]}
        tags = [sweep["name"], sweep["sweep_id"], *sorted({cell["study"] for cell in run.cells})]
        return wandb.init(
            id=trial_id,
            resume="allow",
            reinit="create_new",  # besides the runs of other trials
            entity=self.entity,
            project=self.project or os.environ.get("WANDB_PROJECT") or sweep["name"],
            group=first["study"][:LONGEST_NAME],
            name=payload.build_run_name(trial, run.cells)[:LONGEST_NAME],
            tags=[tag[:LONGEST_TAG] for tag in tags],
            config={**trial["config"], **names},
            dir=self.out,
            settings=wandb.Settings(
                silent=True,
                console="off",  # the driver's output belongs to no trial, as do the next four
                **dict.fromkeys(("disable_git", "x_disable_meta", "x_disable_stats"), True),
                **dict.fromkeys(("save_code", "x_save_requirements"), False),
            ),
        )
