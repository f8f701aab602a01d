"""`ablate prune`: files of finished trials that nobody needs any more.

Checkpoints of what is finished go, and the weights that `--keep` does not name. Logs,
configurations, results and the ledger always stay, and whatever somebody is at work on.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ablate.cli.locate import ledger_path
from ablate.cli.options import add_out
from ablate.engine.presence import drivers
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.queries import find_sweep
from ablate.ledger.records import Records
from ablate.ledger.results import best_cell, cells_by_study, objectives
from ablate.values.terminal import say
from trainables.core.trial_folder import (
    CHECKPOINTS,
    EXPORT,
    LOCK,
    TRIALS,
    check_trial_id,
    trial_folder,
)
from trainables.errors import ConfigError

SETTLED = ("done", "failed")
LINKED = re.compile(r"trials/([0-9a-f]{16}-s\d+)/" + re.escape(EXPORT))


@dataclass(frozen=True)
class Piece:
    """A file or folder of a finished trial that may go, and its bytes."""

    trial_id: str
    path: Path
    size: int


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Say what could go, and how much it frees; remove it with --yes. Logs, "
        "configurations, results and the ledger stay, and so do what runs, what can be resumed and "
        "the weights of sweeps that are not finished."
    )
    command.add_argument("sweep", nargs="?", help="sweep id or name; default: all trials")
    command.add_argument(
        "--keep",
        choices=("best", "weights", "none"),
        default="best",
        help="best (default): the weights of each study's best cell, at all its seeds, which "
        "reports name; weights: all, so that checkpoints alone go; none: no weights",
    )
    command.add_argument("--yes", action="store_true", help="remove it")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """0: told, or done with `--yes`. 1: a file could not be removed.

    Raises:
        ConfigError: the folder of a trial lies outside; nothing is removed then.
    """
    path = ledger_path(args.out)
    out = path.parent
    _check_trials(out)
    with Ledger(path) as ledger:
        pieces, notes = chosen(ledger, out, args.sweep, args.keep)
        lines = _counted(pieces, out, "would free" if not args.yes else "frees")
        say("\n".join([*lines, *notes]))
        if not pieces:
            return 0
        if not args.yes:
            say("\n".join(f"  {piece.path}" for piece in pieces))
            say(
                "Nothing is removed yet. Where weights are gone, more splits or metrics cannot be "
                "evaluated, but by training again. Do it with:"
            )
            say(f"  ablate prune{_options(args)} --yes")
            return 0
        freed, failed = _remove(ledger, pieces)
    say(f"freed {size(freed)}")
    for line in failed:
        say(line, error=True)
    for page in _dead_links(out):
        say(f"{page} links to weights that are gone: `ablate report` writes it anew")
    return 1 if failed else 0


def _check_trials(out: Path) -> None:
    """Raise ConfigError where the folder of all trials leads out of the output folder."""
    trials = out / TRIALS
    if trials.is_symlink():
        raise ConfigError(
            str(trials),
            f"a symbolic link to {trials.readlink()}",
            "a folder, as nothing outside the output folder is removed",
            "Move the trials there, or make the output folder as a whole the link",
        )


def chosen(
    records: Records, out: Path, sweep: str | None, keep: str
) -> tuple[list[Piece], list[str]]:
    """What may go, and what is kept for a reason that should be said."""
    under_way = {driver.sweep_id for driver in drivers(out) if driver.alive}
    open_ = _unfinished(records)
    needs = {
        sweep_id: {row["trial_id"] for row in records.cells(sweep_id)}
        for sweep_id in {*open_, *under_way}
    }
    needed = set[str]().union(*needs.values())
    held = {
        row["trial_id"]
        for row in queries.owners(records)
        if Owner.parse(row["owner"]).alive(row["heartbeat"])
    }
    best = _best_trials(records) if keep == "best" else set()
    if sweep is None:
        rows = queries.trials(records)
    else:
        rows = queries.trials_of(records, find_sweep(records, sweep, "SWEEP"))
    found: list[Piece] = []
    for row in rows:
        trial = row["trial_id"]
        if row["status"] not in SETTLED or trial in held:
            continue
        weights = keep != "weights" and trial not in best and trial not in needed
        found += _pieces(trial_folder(out / TRIALS, trial), row, weights=weights)
    looked_at = {row["trial_id"] for row in rows}
    return found, [
        f"sweep {name} ({sweep_id}) is not finished: its weights stay"
        for sweep_id, name in open_.items()
        if needs[sweep_id] & looked_at
    ]


def _best_trials(records: Records) -> set[str]:
    """Of each study of each sweep the trials, at all seeds and folds, of the cell with the best
    mean of each of its objectives; the earlier one on a tie. Reports name their weights."""
    found: set[str] = set()
    for sweep in queries.sweeps(records):
        spec = records.sweep(sweep["sweep_id"])["spec"]
        for study, cells in cells_by_study(records, sweep["sweep_id"]).items():
            for metric, most in objectives(spec, study):
                cell = best_cell(records, cells, metric, most=most)
                found |= {row["trial_id"] for row in cells[cell]} if cell else set()
    return found


def _unfinished(records: Records) -> dict[str, str]:
    """Sweep → name, of those with a cell that has no result yet: they go on, and may read what is
    trained once more, on other splits or as an ensemble."""
    return {
        sweep["sweep_id"]: sweep["name"]
        for sweep in queries.sweeps(records)
        if any(
            row["done"] + row["failed"] < row["size"]
            for row in queries.progress(records, sweep["sweep_id"])
        )
    }


def _pieces(folder: Path, row: dict[str, Any], *, weights: bool) -> Iterator[Piece]:
    names = [CHECKPOINTS, EXPORT] if weights else [CHECKPOINTS]
    for name in names:
        path = folder / name
        if path.is_symlink() or not path.exists():
            continue  # a link leads elsewhere, where it is not ours to remove
        yield Piece(row["trial_id"], path, _bytes(path))


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.lstat().st_size for each in files)


def _remove(ledger: Ledger, pieces: Iterable[Piece]) -> tuple[int, list[str]]:
    """Bytes freed, and a line for each trial that was left as it is.

    A trial is claimed meanwhile, and its folder locked, so that no driver takes it up.
    """
    me, freed, failed = Owner.me(), 0, list[str]()
    for piece in pieces:
        row = ledger.trial(piece.trial_id) or {}
        done = row.get("status") == "done"
        if done and ledger.claim_evaluation(piece.trial_id, me) != "mine":
            failed.append(f"{piece.trial_id}: left as it is, for a run has taken it up")
            continue
        try:
            folder = trial_folder(piece.path.parent.parent, piece.trial_id)  # still no link
            with FileLock(folder / LOCK, timeout=0):
                if piece.path.is_dir():
                    shutil.rmtree(piece.path)
                else:
                    piece.path.unlink()
            freed += piece.size
        except Timeout:
            failed.append(f"{piece.trial_id}: left as it is, for somebody is at work in its folder")
        except ConfigError as error:
            failed.append(str(error))
        except OSError as error:
            failed.append(f"{piece.path}: not removed ({error.strerror or error})")
        finally:
            if done:
                ledger.release(piece.trial_id, "interrupted")  # what is done stays so
    return freed, failed


def _counted(pieces: list[Piece], out: Path, verb: str) -> list[str]:
    if not pieces:
        return [f"nothing to remove in {out}"]
    lines = []
    for name, what in ((CHECKPOINTS, "checkpoints"), (EXPORT, "weights")):
        some = [piece for piece in pieces if piece.path.name == name]
        if some:
            total = sum(piece.size for piece in some)
            lines.append(f"{what} of {len(some)} trials: {verb} {size(total)}")
    return lines


def size(count: float) -> str:
    """Bytes as people read them, in powers of 1000."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _options(args: argparse.Namespace) -> str:
    words = [args.sweep] if args.sweep else []
    words += [] if args.keep == "best" else ["--keep", args.keep]
    words += [] if args.out == "runs" else ["--out", args.out]
    return "".join(f" {word}" for word in words)


def _dead_links(out: Path) -> list[Path]:
    """Pages of reports that lead to weights which are not there."""
    return [
        page
        for page in sorted((out / "reports").glob("*/report.html"))
        if page.is_file()  # a FIFO would be waited for
        and any(
            not (out / TRIALS / check_trial_id(trial) / EXPORT).exists()
            for trial in set(LINKED.findall(page.read_text(encoding="utf-8", errors="replace")))
        )
    ]
