"""Files of trials made by hand, without a sweep: these tests run where nothing of a driver is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.trainables import core_trials
from trainables.core import components
from trainables.core.components import EVALUATOR, Code, list_components
from trainables.core.identity import build_trial_id, compute_config_hash
from trainables.core.runtime import Runtime
from trainables.data.dataset import fingerprint
from trainables.jobs.request import Job
from trainables.jobs.trial_file import BatchSettings, Entry, SweepInfo, write_cells
from trainables.trial import TrialConfig

ROOT = Path(__file__).parents[3]
SOURCE = SweepInfo("0123456789ab", "made", clean=True)
HEAVY = {"training": {"epochs": 60}}  # long enough to be killed under way


def code(config: dict[str, Any]) -> Code:
    names = [*list_components(config), EVALUATOR]
    hashes = {name: components.compute_component_digest(name)[0] for name in names}
    return Code(
        hashes=hashes,
        revisions={name: components.get_revision(name) for name in names},
        same={name: (str(value),) for name, value in hashes.items()},
    )


def entry(config: TrialConfig, seed: int, print_: str, **changes: Any) -> Entry:
    key, dump = compute_config_hash(config, print_), config.model_dump(mode="json")
    job = Job(
        trial_id=build_trial_id(key, seed),
        config=dump,
        seed=seed,
        runtime=Runtime("cpu", 1, Path("cache"), checkpoint_seconds=0.0),
        evaluate=("val", "test"),
        source=code(dump),
    )
    cells = (("rates", f"lr={config.optimizer.lr}"),)
    return Entry(cells, key, print_, replace(job, **changes))


def entries(root: Path, cache: Path, count: int = 3, **changes: Any) -> list[Entry]:
    """Trials of two rates at as many seeds as it takes."""
    found = []
    for number in range(count):
        lr = (1e-3, 1e-4)[number % 2]
        config = core_trials.config(root, **core_trials.merged({"optimizer": {"lr": lr}}, changes))
        found.append(entry(config, number // 2, fingerprint(config.data, cache)))
    return found


def synthetic(count: int, **changes: Any) -> list[Entry]:
    """Trials for `tests.ablate.synthetic`, whose rates rise from 1e-4."""
    found = []
    for number in range(count):
        given = {"optimizer": {"lr": 1e-4 * (number + 1)}, "training": {"epochs": 3}, **changes}
        found.append(entry(TrialConfig.model_validate(given), 0, "synthetic", source=None))
    return found


def settings(folder: Path, **changes: Any) -> BatchSettings:
    defaults = BatchSettings(
        sweep=SOURCE,
        folder=folder,
        cache=folder / "cache",
        device="cpu",
        data_root=None,
        runner="tests.ablate.synthetic:run_job",
    )
    return replace(defaults, **changes)


def written(path: Path, given: Sequence[Entry]) -> Path:
    write_cells(path, SOURCE, given)
    return path


def command(cells: Path, out: Path, *more: str) -> list[str]:
    module = ["-m", "trainables.jobs.batch", str(cells), "--out", str(out)]
    return [sys.executable, *module, *more]


def start(cells: Path, out: Path, cache: Path, *more: str) -> subprocess.Popen[str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        command(cells, out, *more),
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_heard,  # noqa: PLW1509
        env={
            **os.environ,
            "ABLATE_CACHE": str(cache),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
    )


def _heard() -> None:
    """Signals that whoever runs the tests ignores (a shell does for what it puts in the background)
    would be ignored by a batch, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def finished(cells: Path, out: Path, cache: Path, *more: str) -> tuple[int, str]:
    process = start(cells, out, cache, *more)
    text, _ = process.communicate(timeout=250)
    return process.returncode, text


def begun(folder: Path) -> Iterator[str]:
    """A line for every time that a trial was begun in a batch's folder."""
    for log in sorted(folder.glob("trials/*/trial.log")):
        lines = log.read_text().splitlines()
        yield from (line for line in lines if " begins (train)" in line)
