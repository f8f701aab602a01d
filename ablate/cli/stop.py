"""`ablate stop`: ask the drivers of an output folder to end as Ctrl-C would."""

import argparse
import time

from ablate.cli.options import add_out, add_sweep_name, parse_duration
from ablate.engine.driver_status import DriverStatus, list_drivers, resolve_output_folder
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text

POLL_SECONDS = 0.2


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Stop the runs of an output folder like Ctrl-C, from any shell or machine that "
        "can write there. The command that started a run continues it later."
    )
    command.epilog = (
        "Exit codes: 0 the runs have ended; 1 they have not ended within --wait; 2 nothing runs."
    )
    add_sweep_name(command, "all sweeps in the folder")
    text = "How long to wait for the end of the runs (default: 2m)."
    command.add_argument("--wait", default="2m", metavar="TIME", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Ask the drivers of a sweep, or all, to stop; return 1 if one has not ended in time."""
    deadline = time.monotonic() + parse_duration(args.wait, "--wait")
    drivers = [d for d in list_drivers(resolve_output_folder(args.out)) if d.alive]
    drivers = [d for d in drivers if args.sweep in (None, d.sweep_id, d.name)]
    if not drivers:
        raise ConfigError(
            "SWEEP",
            f"no run of {args.sweep!r} is under way" if args.sweep else "no run is under way",
            "`ablate status` shows what runs",
        )
    for driver in drivers:
        try:
            driver.ask_to_stop()
        except OSError as error:
            raise ConfigError(
                str(driver.path.parent),
                f"no file can be written here ({error.strerror})",
                f"Press Ctrl-C where the run was started, or call `kill -INT {driver.owner.pid}` "
                f"on {driver.owner.host}",
            ) from error
        print_text(f"asked {_describe_run(driver)} to stop")
    # wait until all have ended
    while drivers and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        drivers = [driver for driver in drivers if driver.path.exists() and driver.alive]
    for driver in drivers:
        print_text(
            f"{_describe_run(driver)} has not ended yet. Its trials may finish a step first.",
            error=True,
        )
    if not drivers:
        print_text("Stopped. The command that started a run continues it from its checkpoints.")
    return 1 if drivers else 0


def _describe_run(driver: DriverStatus) -> str:
    return f"sweep {driver.name}, {driver.sweep_id} ({driver.owner.describe()})"
