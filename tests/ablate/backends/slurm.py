"""Stand-ins for sbatch, squeue and sacct: bash scripts around a folder, and a cluster that runs
their tasks, in this process or in processes of their own.

    jobs/ID/name, jobs/ID/script     the name and the command that sbatch was given
    jobs/ID/tasks/N                  the state of task N
    calls                            the arguments of each call of sbatch
    refuse                           if there: sbatch prints it and fails
    down                             if there: squeue and sacct fail
    kill                             a line for each call of sbatch: where it or its caller ends
    run                              if there: sbatch starts the tasks
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from pathlib import Path

from tests.ablate.backends.batch.sweeps import RUNNER
from trainables.jobs.trial_file import (
    BatchSettings,
    Entry,
    SweepInfo,
    list_pending,
    read_cells,
    run_trial,
)

BATCH = "trainables.jobs.batch"
SBATCH = """echo "$*" >>"$SLURM_FOLDER/calls"
cd "$SLURM_FOLDER"
if [[ -e refuse ]]; then cat refuse >&2; exit 1; fi
point=$(head -n1 kill 2>/dev/null); sed -i 1d kill 2>/dev/null
if [[ $point == before ]]; then kill -9 $PPID; exit 1; fi
if [[ $point == late ]]; then kill -9 $PPID; sleep 2; fi
for word; do
  case $word in
    --job-name=*) name=${word#*=} ;;
    --array=*) array=${word#*=1-} ;;
    --output=*) output=${word#*=} ;;
    --wrap=*) command=${word#*=} ;;
  esac
done
id=$((100 + $(ls jobs | wc -l)))
mkdir -p jobs/$id/tasks
echo "$name" >jobs/$id/name; echo "$command" >jobs/$id/script
for task in $(seq "${array%\\%*}"); do echo PENDING >jobs/$id/tasks/$task; done
if [[ -e run ]]; then
  task='cd "$SLURM_FOLDER/jobs/$0/tasks"; echo RUNNING >$1; export SLURM_ARRAY_TASK_ID=$1
    if bash ../script >>"${2/\\%a/$1}" 2>&1; then echo COMPLETED >$1; else echo FAILED >$1; fi'
  (
    for fd in $(ls /proc/$BASHPID/fd); do ((fd > 2)) && eval "exec $fd>&-"; done
    seq "${array%\\%*}" | setsid xargs -P "${array#*\\%}" -I{} bash -c "$task" $id {} "$output"
  ) >/dev/null 2>&1 &
fi
if [[ $point == unanswered ]]; then kill -9 $PPID; exit 1; fi
if [[ $point == silent ]]; then echo "sbatch: error: Socket timed out" >&2; exit 1; fi
echo $id
if [[ $point == answered ]]; then kill -9 $PPID; fi
"""
LIST = """cd "$SLURM_FOLDER"
if [[ -e down ]]; then echo "slurm_load_jobs error: Unable to contact controller" >&2; exit 1; fi
for word; do [[ $word == --name=* ]] && name=${word#*=}; done
for job in jobs/*; do
  [[ $(cat $job/name 2>/dev/null) == "$name" ]] || continue
  for task in $job/tasks/*; do
    state=$(cat $task)
    """
SQUEUE = (
    LIST
    + """[[ $state == PENDING || $state == RUNNING ]] || continue
    echo "${job#*/} $state $([[ $state == PENDING ]] && echo Resources || echo None)"
  done
done"""
)
SACCT = (
    LIST
    + """echo "${job#*/}_${task##*/}|$state"
  done
done"""
)


class Cluster(threading.Event):
    """Slurm in a folder; as a follower's `stop`, it runs pending tasks while the follower waits.

    `fate` may return the state in which a task ends without running its trials.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        super().__init__()
        self.folder, self.out = folder, out
        self.fate: Callable[[list[str]], str | None] = lambda trials: None
        (folder / "jobs").mkdir(parents=True)
        (folder / "bin").mkdir()
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("sacct", SACCT)):
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / "bin" / name).chmod(0o755)
        self.environment = {
            "SLURM_FOLDER": str(folder),
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
        }

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def list_parts(self, job: Path) -> tuple[SweepInfo, dict[Path, list[Entry]]]:
        """Map each task of a job to its trials."""
        words = shlex.split((job / "script").read_text())
        source, entries = read_cells(Path(words[words.index(BATCH) + 1]))
        tasks = sorted((job / "tasks").iterdir(), key=lambda task: int(task.name))
        return source, {task: entries[i :: len(tasks)] for i, task in enumerate(tasks)}

    def jobs(self) -> dict[str, list[str]]:
        """Job → its trials."""
        return {
            job.name: [e.trial_id for part in self.list_parts(job)[1].values() for e in part]
            for job in sorted((self.folder / "jobs").iterdir())
        }

    def wait(self, timeout: float | None = None) -> bool:
        for job in (self.folder / "jobs").iterdir():
            source, parts = self.list_parts(job)
            settings = BatchSettings(source, self.out, self.out / "cache", "cpu", None, RUNNER)
            for task, part in parts.items():
                if task.read_text().strip() == "PENDING":
                    state = self.fate([entry.trial_id for entry in part])
                    for entry in list_pending(settings, part) if state is None else []:
                        run_trial(settings, entry)
                    task.write_text(state or "COMPLETED")
        return self.is_set()
