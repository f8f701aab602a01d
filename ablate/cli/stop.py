"""`ablate stop`: asks drivers of an output folder to end as Ctrl-C would."""

from __future__ import annotations

import argparse
import time

from ablate.cli.options import add_out, parse_duration
from ablate.cli.status import describe_process
from ablate.engine.driver_status import DriverStatus, list_drivers, resolve_output_folder
from ablate.values.terminal import print_text
from trainables.errors import ConfigError

POLL_SECONDS = 0.2


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Stop the runs of an output folder like Ctrl-C, from any shell or machine that "
        "can write there. The command that started a run continues it later."
    )
    command.epilog = (
        "Exit codes: 0 the runs have ended; 1 they have not ended within --wait; 2 nothing runs."
    )
    command.add_argument(
        "sweep", nargs="?", help="The sweep, by id or name (default: all sweeps in the folder)."
    )
    command.add_argument(
        "--wait",
        default="2m",
        metavar="TIME",
        help=(
            "How long to wait until the runs have ended, for example 0, 30s or 2m (the default)."
        ),
    )
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Return 0 if all that were asked have ended, 1 if some have not in time."""
    end = time.monotonic() + parse_duration(args.wait, "--wait")
    running = [
        driver
        for driver in list_drivers(resolve_output_folder(args.out))
        if driver.alive and args.sweep in (None, driver.sweep_id, driver.name)
    ]
    if not running:
        shown = f"{args.sweep!r}, which no run drives here" if args.sweep else "no run under way"
        raise ConfigError("SWEEP", f"{shown}: `ablate status` tells what runs")
    for driver in running:
        try:
            driver.ask_to_stop()
        except OSError as error:
            ways = f"press Ctrl-C there, or `kill -INT {driver.owner.pid}` on {driver.owner.host}"
            fault = f"it cannot be written ({error.strerror}): {ways}"
            raise ConfigError(str(driver.path.parent), fault) from error
        print_text(f"asked {_describe_run(driver)} to stop")
    while running := [driver for driver in running if driver.path.exists() and driver.alive]:
        if time.monotonic() >= end:
            break
        time.sleep(POLL_SECONDS)
    for driver in running:
        print_text(
            f"{_describe_run(driver)} has not ended yet; trials may end their step first",
            error=True,
        )
    if not running:
        print_text("stopped; what was running resumes from its checkpoints by the same command")
    return 1 if running else 0


def _describe_run(driver: DriverStatus) -> str:
    process = describe_process(driver.owner.pid, driver.owner.host)
    return f"sweep {driver.name}, {driver.sweep_id} ({process})"
