"""Start the tasks of a submission by Slurm or on this machine, and ask for their states."""

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence

from ablate.submission.record import Submission
from trainables.errors import ConfigError


class QueryError(ConfigError):
    """Slurm does not answer a question, so the state of a job is unknown."""


def start_tasks(
    submission: Submission, command: Sequence[str], sbatch: Sequence[str], limit: int | None
) -> None:
    """Start tasks that run a command, at most `limit` at once, by sbatch with these arguments."""
    if submission.is_local:
        log = shlex.quote(f"{submission.folder}/1.log")
        script = f"echo $$; {shlex.join(command)} >>{log} 2>&1 &"  # $$ is also the process group
        submission.launch(["bash", "-c", script])
        return
    folder = str(submission.folder).replace("%", "%%")  # sbatch expands %a
    shard = f'--shard "$SLURM_ARRAY_TASK_ID/{submission.tasks}"'
    array = f"--array=1-{submission.tasks}" + (f"%{limit}" if limit else "")
    output = ("--open-mode=append", f"--output={folder}/%a.log")
    wrap = f"--wrap=exec {shlex.join(command)} {shard}"
    # of options given twice sbatch takes the last; after the first --wrap it refuses a script
    job = (f"--job-name={submission.folder.name}", array, *output, wrap)
    submission.launch(["sbatch", "--parsable", wrap, *sbatch, *job])


def has_job(submission: Submission) -> bool:
    """Return whether tasks were started, also if the command was killed while it started them."""
    if submission.is_local:
        return submission.is_locked() or submission.job_id != ""
    if not submission.job_id:
        submission.is_locked(wait=True)  # sbatch may outlive the command that started it
    if not submission.job_id and (rows := _query_queue(submission) or _query_accounts(submission)):
        # sbatch failed or was killed, or its answer was lost: the job's unique name decides
        (submission.folder / "answer").write_text(re.split(r"\D", rows[0][0])[0])
    return submission.job_id != ""


def list_states(submission: Submission) -> list[str]:
    """Return the states of the tasks that have not ended."""
    if submission.is_local:
        return ["RUNNING"] if submission.is_locked() else []
    return [
        f"{state} ({reason})" if state == "PENDING" else state
        for _, state, reason in _query_queue(submission)
    ]


def list_ends(submission: Submission) -> dict[int, str]:
    """Map tasks that have ended to their last state, as far as it is known."""
    rows = [] if submission.is_local else _query_accounts(submission)
    return {int(job.split("_")[1]): state for job, state in rows if re.search(r"_\d+$", job)}


def describe_states(submission: Submission, states: Sequence[str]) -> str:
    """Return how many tasks have each state, such as `3 RUNNING, 5 ended`."""
    counts = Counter([*states, *["ended"] * (submission.tasks - len(states))])
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _query_queue(submission: Submission) -> list[list[str]]:
    """Return job, state and reason of the tasks that have not ended."""
    options = ("--noheader", "--array", f"--name={submission.folder.name}", "--format=%F %T %r")
    return [line.split(maxsplit=2) for line in _ask("squeue", *options)]


def _query_accounts(submission: Submission) -> list[list[str]]:
    """Return job and state of all tasks; nothing if this cluster keeps no accounts."""
    start = submission.folder.name.removeprefix("ablate-")[:10]  # the day
    options = ("--noheader", "--parsable2", "--allocations", "--format=JobID,State")
    try:
        lines = _ask("sacct", *options, f"--name={submission.folder.name}", f"--starttime={start}")
    except QueryError as error:
        if re.search("storage is disabled|No such file", str(error)):
            return []
        raise
    return [line.split("|") for line in lines]


def _ask(*command: str) -> list[str]:
    """Return the lines that a command of Slurm prints, or raise QueryError."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120.0)
    except (OSError, subprocess.SubprocessError) as error:
        text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        fault = " ".join(text.split()) or str(error)
        remedy = "The same command continues when Slurm answers."
        raise QueryError(command[0], f"Slurm does not answer ({fault}). {remedy}") from error
    return [line for line in done.stdout.splitlines() if line.strip()]
