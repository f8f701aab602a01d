"""Record what was submitted, so that `ablate submit` continues after it was killed at any point.

    OUT/submitted/NAME/job.json      what was submitted, and whether its results are recorded
                       cells.jsonl   the trials (`ablate/batch.py`)
                       answer        what sbatch wrote
                       lock          held by sbatch, or by the process of `--local`
                       N.log         the output of task N

NAME is unique, and is the job's name in Slurm. `job.json` is on disk before `sbatch` starts.
"""

import fcntl
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, Field

from trainables.errors import ConfigError
from trainables.machine.files import write_atomically

FOLDER, RECORD = "submitted", "job.json"


class Submission(BaseModel):
    """Trials that were submitted; of T tasks, task N runs each T-th trial from the N-th on.

    Attributes:
        is_local: whether a process of this machine runs the trials, and not Slurm.
        progress: trial → what its folder showed of its progress when it was submitted.
        ended: whether all tasks have ended and their results are recorded.
    """

    folder: Path = Field(default=Path(), exclude=True)
    is_local: bool
    sweep_id: str
    tasks: int
    progress: dict[str, str]
    ended: bool = False

    def __str__(self) -> str:
        kind = "process" if self.is_local else "Slurm job"
        return f"{kind} {self.job_id or self.folder.name}"

    @property
    def job_id(self) -> str:
        """The id of the job or process that `launch` started; "" if it is unknown."""
        ids = re.findall(r"^(\d+)(?:;.*)?$", self.read_answer(), re.MULTILINE)
        return ids[-1] if ids else ""  # sbatch writes JOB or JOB;CLUSTER

    def write(self) -> None:
        """Write the record durably."""
        write_atomically(self.folder / RECORD, self.model_dump_json(indent=1).encode())

    def launch(self, command: Sequence[str]) -> None:
        """Run a command, which goes on and holds this record's lock if this process is killed."""
        with (
            (self.folder / "lock").open("ab") as lock,
            (self.folder / "answer").open("ab") as answer,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)
            code = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # neither Ctrl-C nor a closed terminal ends it
            ).returncode
            answer.write(f"exit code {code}".encode())

    def is_locked(self, *, wait: bool = False) -> bool:
        """Return whether a process of `launch` is alive; with `wait`, wait until it has ended."""
        with suppress(BlockingIOError), (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return False
        return True

    def read_answer(self) -> str:
        """Return what the process of `launch` wrote; "" if it wrote nothing, or never began."""
        path = self.folder / "answer"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def find_task(self, trial_id: str) -> int:
        return [*self.progress].index(trial_id) % self.tasks + 1

    def locate_log(self, trial_id: str) -> Path:
        return self.folder / f"{self.find_task(trial_id)}.log"


def find_current(out: Path) -> Submission | None:
    """Return the submission whose tasks have not ended, or whose results are not recorded."""
    return next((record for record in list_submissions(out) if not record.ended), None)


def list_submissions(out: Path) -> list[Submission]:
    """Read all records in an output folder, the oldest first; ConfigError if one is damaged."""
    submissions = []
    for path in sorted((out / FOLDER).glob(f"*[0-9a-f]/{RECORD}")):
        try:
            submission = Submission.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            remedy = "End its job if it runs, and move its folder away."
            raise ConfigError(str(path), f"this record is unusable. {remedy}") from error
        submission.folder = path.parent.resolve()
        submissions.append(submission)
    return submissions
