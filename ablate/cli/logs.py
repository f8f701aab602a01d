"""`ablate logs`: what a trial wrote."""

from __future__ import annotations

import argparse
import os
import time
from codecs import getincrementaldecoder
from pathlib import Path
from typing import BinaryIO

from ablate.cli.locate import ledger_path, trial_called
from ablate.cli.options import add_out, positive
from ablate.ledger.records import Records
from ablate.values.terminal import say
from trainables.core.trial_folder import TRIALS, TrialFolder
from trainables.errors import ConfigError
from trainables.machine.files import open_regular

FOLLOW_SECONDS = 0.5
BLOCK = 2**16  # bytes that are read at once
MOST_BYTES = 2**24  # that are looked through for the last lines


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("trial", metavar="TRIAL", help="a trial id or its beginning")
    command.add_argument("--lines", type=positive, metavar="N", help="the last N alone")
    command.add_argument("--follow", action="store_true", help="go on until the trial ends")
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print a trial's log; with `--follow` until its trial is no longer under way."""
    ledger = ledger_path(args.out)
    with Records(ledger) as records:
        trial = trial_called(records, args.trial)
        file = TrialFolder.of(ledger.parent / TRIALS, trial).log
        if not file.is_file():
            status = (records.trial(trial) or {}).get("status")
            raise ConfigError(
                str(file),
                f"no log, of a trial that is {status}",
                "one of a trial that has started, and whose folder is here",
                f"`ablate ledger show {trial}` tells what is known of it",
            )
        read = _tail(file, args.lines)
        while args.follow:
            under_way = (records.trial(trial) or {}).get("status") == "running"
            read = _more(file, read)
            if not under_way:
                break
            time.sleep(FOLLOW_SECONDS)
    return 0


def _tail(file: Path, lines: int | None) -> int:
    """Print the last lines, or all; returns the bytes read."""
    with _opened(file) as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(0 if lines is None else _start_of_last(log, lines, size))
        return _print_rest(log, end_line=True)


def _start_of_last(log: BinaryIO, lines: int, size: int) -> int:
    """Return where the last lines begin; of lines longer than `MOST_BYTES` in all their end."""
    start, found = size, 0
    while start > max(0, size - MOST_BYTES):
        begin = max(0, start - BLOCK)
        log.seek(begin)
        block = log.read(start - begin)
        at = len(block)
        if start == size and block.endswith(b"\n"):
            at -= 1  # it ends the last line
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == lines:
                return begin + at + 1
        start = begin
    return start


def _more(file: Path, read: int) -> int:
    """Print what came after so many bytes; returns how many there are."""
    with _opened(file) as log:
        log.seek(read)
        return _print_rest(log, end_line=False)


def _print_rest(log: BinaryIO, *, end_line: bool) -> int:
    """Print what is left, a block at a time; returns where it ends.

    Args:
        end_line: whether to end a last line that has no end.
    """
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    text = "\n"
    while block := log.read(BLOCK):
        text = decoder.decode(block) or text
        say(text, end="", flush=True)
    rest = decoder.decode(b"", final=True)
    say(rest + ("\n" if end_line and not (rest or text).endswith("\n") else ""), end="", flush=True)
    return log.tell()


def _opened(file: Path) -> BinaryIO:
    try:
        return open_regular(file)
    except OSError as error:
        raise ConfigError(
            str(file), error.strerror or str(error), "the log of a trial", "Look at it yourself"
        ) from error
