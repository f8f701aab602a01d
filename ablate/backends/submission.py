"""Record and start what is submitted, so that `ablate submit` continues after it was killed.

    OUT/submitted/NAME/job.json      what was submitted, and whether its results are recorded
                       cells.jsonl   the trials (`ablate/backends/batch_file.py`)
                       answer        what sbatch wrote
                       lock          held by sbatch, or by the process of `--local`
                       N.log         the output of task N

NAME is unique, and is the job's name in Slurm. `job.json` is on disk before `sbatch` starts.
"""

import fcntl
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, Field

from trainables.words.environment import HUB, SLURM, add_import_paths, build_public_environment
from trainables.words.errors import ConfigError
from trainables.words.files import write_atomically

FOLDER, RECORD = "submitted", "job.json"


class QueryError(ConfigError):
    """Slurm does not answer a question, so the state of a job is unknown."""


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
            environment = build_public_environment(keep=(*SLURM, *HUB))
            code = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.STDOUT,
                env=add_import_paths(environment, sys.path[0]),
                pass_fds=[lock.fileno()],
                start_new_session=True,  # neither Ctrl-C nor a closed terminal ends it
            ).returncode
            answer.write(f"exit code {code}".encode())

    def is_locked(self) -> bool:
        """Return whether a process of `launch` is alive."""
        with suppress(BlockingIOError), (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True

    def wait_for_launch(self) -> None:
        """Wait until the process of `launch` has ended."""
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def read_answer(self) -> str:
        """Return what the process of `launch` wrote; "" if it wrote nothing, or never began."""
        path = self.folder / "answer"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def number_tasks(self) -> dict[str, int]:
        """Map each trial to the number of its task."""
        return {trial: i % self.tasks + 1 for i, trial in enumerate(self.progress)}

    def locate_log(self, trial_id: str) -> Path:
        return self.folder / f"{self.number_tasks()[trial_id]}.log"

    def start_tasks(self, command: Sequence[str], sbatch: Sequence[str], limit: int | None) -> None:
        """Start tasks that run a command, at most `limit` at once, by these words of sbatch."""
        if self.is_local:
            log = shlex.quote(f"{self.folder}/1.log")
            # $$ is also the process group
            self.launch(["bash", "-c", f"echo $$; {shlex.join(command)} >>{log} 2>&1 &"])
            return
        folder = str(self.folder).replace("%", "%%")  # sbatch expands %a
        shard = f'--shard "$SLURM_ARRAY_TASK_ID/{self.tasks}"'
        array = f"--array=1-{self.tasks}" + (f"%{limit}" if limit else "")
        output = ("--open-mode=append", f"--output={folder}/%a.log")
        wrap = f"--wrap=exec {shlex.join(command)} {shard}"
        # of options given twice sbatch takes the last; after the first --wrap it refuses a script
        job = (f"--job-name={self.folder.name}", array, *output, wrap)
        self.launch(["sbatch", "--parsable", wrap, *sbatch, *job])

    def has_job(self) -> bool:
        """Return whether tasks were started, perhaps by a command that was killed meanwhile."""
        if self.is_local:
            return self.is_locked() or self.job_id != ""
        if not self.job_id:
            self.wait_for_launch()  # sbatch may outlive the command that started it
        if not self.job_id and (rows := self._query_queue() or self._query_accounts()):
            # sbatch failed or was killed, or its answer was lost: the job's unique name decides
            (self.folder / "answer").write_text(re.split(r"\D", rows[0][0])[0])
        return self.job_id != ""

    def list_states(self) -> list[str]:
        """Return the states of the tasks that have not ended."""
        if self.is_local:
            return ["RUNNING"] if self.is_locked() else []
        return [
            f"{state} ({reason})" if state == "PENDING" else state
            for _, state, reason in self._query_queue()
        ]

    def list_ends(self) -> dict[int, str]:
        """Map tasks that have ended to their last state, as far as it is known."""
        rows = [] if self.is_local else self._query_accounts()
        return {int(job.split("_")[1]): state for job, state in rows if re.search(r"_\d+$", job)}

    def describe_states(self, states: Sequence[str]) -> str:
        """Return how many tasks have each state, such as `3 RUNNING, 5 ended`."""
        counts = Counter([*states, *["ended"] * (self.tasks - len(states))])
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))

    def _query_queue(self) -> list[list[str]]:
        """Return job, state and reason of the tasks that have not ended."""
        options = ("--noheader", "--array", f"--name={self.folder.name}", "--format=%F %T %r")
        return [line.split(maxsplit=2) for line in _ask("squeue", *options)]

    def _query_accounts(self) -> list[list[str]]:
        """Return job and state of all tasks; nothing if this cluster keeps no accounts."""
        start = self.folder.name.removeprefix("ablate-")[:10]  # the day
        options = ("--noheader", "--parsable2", "--allocations", "--format=JobID,State")
        try:
            lines = _ask("sacct", *options, f"--name={self.folder.name}", f"--starttime={start}")
        except QueryError as error:
            if re.search("storage is disabled|No such file", str(error)):
                return []
            raise
        return [line.split("|") for line in lines]


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
            raise ConfigError(
                str(path),
                "this record is unusable",
                "End its job if it runs, and move its folder away",
            ) from error
        submission.folder = path.parent.resolve()
        submissions.append(submission)
    return submissions


def _ask(*command: str) -> list[str]:
    """Return the lines that a command of Slurm prints, or raise QueryError."""
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=120.0,
            env=build_public_environment(keep=SLURM),
        )
    except (OSError, subprocess.SubprocessError) as error:
        text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        fault = " ".join(text.split()) or str(error)
        raise QueryError(
            command[0],
            f"Slurm does not answer ({fault})",
            "The same command continues when Slurm answers",
        ) from error
    return [line for line in done.stdout.splitlines() if line.strip()]
